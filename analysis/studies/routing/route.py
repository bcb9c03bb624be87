"""The router lab: how much of the far attention bucket routers find, calibrated on some documents, tested on others."""

from dataclasses import asdict
from pathlib import Path

import pandas as pd

from analysis.commandline import commandline
from analysis.corpus import text_hash
from analysis.errors import BadSetting
from analysis.metrics.intervals import DOCUMENTS, state
from analysis.metrics.routing import budgets
from analysis.models import Model
from analysis.routers import MEANING
from analysis.routers.buckets import buckets_for
from analysis.routers.mlp import MOST
from analysis.routers.state import FOLDER
from analysis.runs import Result
from analysis.studies.context import STREAMED, Context, check_seed, protocol
from analysis.studies.routing import rows
from analysis.studies.routing.cells import RAW, SINKS, Cell
from analysis.studies.routing.fit import ABLATIONS, OWN, Fitted, Parts, calibrate, queries_of
from analysis.studies.routing.passes import rotated_layers
from analysis.studies.routing.score import Curves, balance_rows, score_routers
from analysis.studies.routing.states import Kept, keep, state_of
from analysis.studies.routing.texts import heads_of, prompts_of, sides_of, tokens_needed
from analysis.studies.stored.runner import table
from analysis.studies.text.held_out import check_range, make_folder, storing

LONGEST = 2048  # tokens of a prompt unless said otherwise
GRID = (16, 64, 256, 1024)  # minimum distances


def route(
    model: str = "demo",
    texts: list[str] | None = None,
    corpus: str = "",
    heads: str = "all",
    min_distance: int = 64,
    sinks: int = 0,
    buckets: int | None = None,
    length: int | None = None,
    prompts: int = 12,
    grid: bool = False,
    own: bool = False,
    mlp: bool = True,
    store: bool = False,
    visited: float | None = None,
    work: str | None = None,
    seed: int = 0,
    *,
    context: Context,
) -> Result:
    """Recall and selectivity of every bucket router. The first half of the documents calibrates, the rest tests.

    `texts` (hashes) or the folder `corpus`, at least three documents on either side; of each side about `prompts`
    windows of `length` tokens (default: 2,048 or the model's context). `heads` "all" or "2:0,7:0". A query's mass is
    that of the keys at least `min_distance` back, the first `sinks` keys left out (0: none), and adds up to 1.
    `buckets` C (default: length / 32). `grid`: also every distance of 16, 64, 256, 1024 that fits, with sinks and
    without the first 4 keys. `own`: also whitening and GWR geometric in buckets of their own vectors, beside their
    own oracle. `mlp`: train the learned router, and in the first setting its ablations: squared error, and a linear
    map with its cross-entropy. `visited` l of the tables (default: C / 32). `store`: keep buckets,
    routers and curves in the fitted state (all heads, raw keys). `work`: a folder from which a stopped run goes on.
    numbers: `rows` (`layer head router l recall selectivity recall_low recall_high` at each budget from C/256 to C/8),
    `means` (over heads, at `l`), `curve` and `closures` (`means` and `closure` at every budget), `closure`, `heads`
    (the paper's table 2), `cells` (one per setting, with its own `means`, `curve`, `closures`, `heads`), `balance`,
    `timings`, `paper`, `meaning`, `budgets`, `buckets`, `l`, `sentence`, `notes`; tables: `means`, `rows`.
    Errors: BadSetting, BadText, TooLarge, BadModel.
    """
    check_seed(seed)
    if store and heads != "all":
        raise BadSetting("Only routers of all heads can be stored: leave the heads out.")
    if context.browser and (store or work):
        raise BadSetting("Routers are stored from the command line, not from a page: leave store and work out.")
    lm = context.model(model)
    length = length or min(lm.max_positions, LONGEST)
    buckets = buckets or buckets_for(length)
    _check(lm, min_distance, sinks, buckets, length, prompts, visited)
    chosen = heads_of(lm, heads)
    cells = _cells(min_distance, sinks, length, grid, own)
    sides = sides_of(context, texts, corpus)
    texts_hash = text_hash(" ".join(text_hash(text) for text in (*sides[0], "|", *sides[1])))
    context.progress(0.0, "cutting the texts into prompts")
    needed = tokens_needed(min_distance, sinks)
    calibration, test = (prompts_of(lm, side, length, prompts, needed) for side in sides)
    rotated = rotated_layers(lm)
    decides = (lm.revision, texts_hash, heads, min_distance, sinks, buckets, length, prompts, seed)
    parts = Parts()  # where learned routers are kept while the run goes on
    if work:
        make_folder(Path(work))
        parts = Parts(Path(work), text_hash(" ".join(map(str, decides))))
    fitted = calibrate(context, lm, calibration, chosen, rotated, cells, buckets, seed, mlp, parts)
    curves, micro, counts = score_routers(context, lm, test, fitted)
    documents, budget = len(curves.queries[cells[0]]), visited or max(1, buckets // 32)
    source = {"corpus": "DIR"} if corpus else {"texts": ["TEXT"] * len(texts)}
    request = {"min_distance": min_distance, "sinks": sinks, "buckets": buckets, "length": length, "prompts": prompts}
    request |= {"grid": grid, "own": own, "mlp": mlp, "store": store, "visited": visited, "seed": seed}
    command = commandline("route", source | {"model": lm.name, "heads": heads} | request)
    tokens = sum(len(prompt.ids) for prompt in (*calibration, *test))
    details = {"window": length, "seed": seed, "kernel": STREAMED, "command": command, "unit": "documents"}
    details |= {"keys": [text_hash(text) for text in sides[0]]}
    details |= {"documents": [len({p.document for p in side}) for side in (calibration, test)]}
    details |= {
        "prompts": [len(calibration), len(test)],
        "min_distance": min_distance,
        "sinks": sinks,
        "buckets": buckets,
    }
    about = protocol("route", lm, texts_hash, tokens, **details)
    short = sum(len(prompt.ids) < length for prompt in (*calibration, *test))
    notes = [
        f"{len(calibration)} prompts of at most {length:,} tokens calibrate and {len(test)} of other documents test; "
        f"{state(documents, True, documents >= DOCUMENTS, 'test documents')}."
    ]
    queries = queries_of(calibration, cells[0])
    learned = "" if not mlp or queries <= MOST else f" (those that are trained step by step from {MOST:,} of them)"
    notes += [f"Every router learns from the same queries, {queries:,} of each head{learned}."]
    notes += [f"{short} prompts are shorter than {length:,} tokens."] if short else []
    beside = {
        "balance": balance_rows(fitted, counts),
        "timings": _timings(fitted, micro),
        "notes": notes,
    }
    heads_at = [row for l in budgets(buckets) for row in rows.head_rows(curves, cells[0], l)]  # noqa: E741
    by_cell = [of_cell(curves, cell, budget) for cell in cells]
    main = {name: by_cell[0][name] for name in ("means", "curve", "closures", "closure", "heads", "l", "queries")}
    numbers = {
        "sentence": rows.sentence(main["means"], buckets, documents),
        "rows": heads_at,
        **main,
        "cells": by_cell,
        **beside,
        "paper": rows.paper_rows(),
        "meaning": MEANING,
        "budgets": budgets(buckets),
        "buckets": buckets,
        "protocol": about,
    }
    stored = Kept(curves, about, beside)
    context.kept["routing"] = (stored.key, stored)
    if store:
        numbers["notes"] = [*numbers["notes"], *_store(context, lm, fitted, stored, length, seed, about)]
    parts.clear()
    return Result(numbers, {"means": table(main["means"]), "rows": pd.DataFrame(heads_at)})


def _check(
    lm: Model, min_distance: int, sinks: int, buckets: int, length: int, prompts: int, visited: float | None
) -> None:
    check_range("The length of a prompt", length, 8, lm.max_positions)
    check_range("The minimum distance", min_distance, 1, length - 1)
    check_range("The number of sinks", sinks, 0, 64)
    check_range("The number of prompts", prompts, 1, 4096)
    if not 2 <= buckets <= length:
        raise BadSetting(
            f"{buckets:,} buckets were asked for and a prompt has {length:,} keys: choose 2 to {length:,} buckets, "
            f"such as {buckets_for(length):,}."
        )
    if visited is not None and not 1 <= visited <= buckets:
        raise BadSetting(f"{visited:g} buckets were to be visited, and there are {buckets:,}: choose 1 to {buckets:,}.")
    if tokens_needed(min_distance, sinks) > length:
        raise BadSetting(
            f"In a prompt of {length:,} tokens no key lies {min_distance:,} back once {sinks} sinks are left out: make "
            f"it at least {tokens_needed(min_distance, sinks):,} tokens long, or the minimum distance smaller."
        )


def _cells(min_distance: int, sinks: int, length: int, grid: bool, own_partitions: bool) -> list[Cell]:
    cells = [Cell(min_distance, sinks)]
    if grid:
        fits = [distance for distance in GRID if distance <= length // 2]
        cells += [Cell(distance, left_out) for distance in fits for left_out in (0, SINKS)]
    if own_partitions:
        cells += [Cell(min_distance, sinks, kind) for kind in OWN]
    return list(dict.fromkeys(cells))


def of_cell(curves: Curves, cell: Cell, visited: float) -> dict:
    """What is told of one setting: its tables at every budget, and at `at` visited buckets."""
    return {
        **{"name": cell.name, **asdict(cell), "l": visited},
        "means": rows.mean_rows(curves, cell, visited),
        "closure": rows.closure_rows(curves, cell, visited),
        "heads": rows.head_table(curves, cell, visited) if cell.partition == RAW else [],
        **rows.budget_rows(curves, cell),
        "queries": int(curves.queries[cell].sum()),
    }


def _timings(fitted: Fitted, micro: dict[str, float]) -> list[dict]:
    """`router fit_seconds route_us`: all heads of one setting, without the pass that all share; a query of one head."""
    settings = sum(cell.partition == RAW for cell in fitted.routers)
    once = (*OWN, *ABLATIONS)  # whitening and the gauge serve all settings, ablations are of one
    shared = {kind: 1 if kind in once else settings for kind in micro}
    timings = [
        {"router": kind, "fit_seconds": fitted.seconds.get(kind, 0.0) / shared[kind], "route_us": micro[kind]}
        for kind in micro
    ]
    return [*timings, {"router": "buckets", "fit_seconds": fitted.seconds["buckets"], "route_us": None}]


def _store(context: Context, lm: Model, fitted: Fitted, stored: Kept, length: int, seed: int, about: dict) -> list[str]:
    """Buckets and routers of the first minimum distance, with sinks and without, and the curves of all cells. Returns
    sentences about the runs that used earlier ones."""
    folder = context.state_dirs(lm)[0] / FOLDER
    cells = [cell for cell in fitted.routers if cell.partition == RAW]
    with storing("routers", folder):
        for cell in cells:
            if cell.min_distance == cells[0].min_distance:
                state_of(lm, fitted, cell, length, seed, protocol=about).save(folder)
        keep(folder, stored)
    return context.forget("method", "bucket_routing", lm)
