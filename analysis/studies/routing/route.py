"""The router lab: how much of the far attention bucket routers find, calibrated on some documents, tested on others."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...commands import commandline
from ...commands.routing import Route
from ...corpus import text_hash
from ...errors import BadSetting
from ...metrics.intervals import DOCUMENTS, state
from ...metrics.routing import budgets
from ...models import Model
from ...routers import MEANING
from ...routers.buckets import buckets_for
from ...routers.mlp import MOST
from ...routers.state import FOLDER
from ..context import STREAMED, Context, check_seed, protocol
from ..text.held_out import check_range, make_folder, storing
from . import rows
from .cells import RAW, SINKS, Cell
from .fit import ABLATIONS, OWN, Fitted, Parts, calibrate, queries_of
from .passes import rotated_layers
from .results import Routed, RoutedCell
from .score import Curves, RouterTiming, balance_rows, score_routers
from .states import Beside, Kept, keep, state_of
from .texts import Prompt, heads_of, prompts_of, sides_of, tokens_needed

LONGEST = 2048  # tokens of a prompt unless said otherwise
GRID = (16, 64, 256, 1024)  # minimum distances


def route(request: Route, *, context: Context) -> Routed:
    """Recall and selectivity of every bucket router. The first half of the documents calibrates, the rest tests.

    `texts` (hashes) or the folder `corpus`, at least three documents on either side; of each side about `prompts`
    windows of `length` tokens (default: 2,048 or the model's context). `heads` "all" or "2:0,7:0". A query's mass is
    that of the keys at least `min_distance` back, the first `sinks` keys left out (0: none), and adds up to 1.
    `buckets` C (default: length / 32). `grid`: also every distance of 16, 64, 256, 1024 that fits, with sinks and
    without the first 4 keys. `own`: also whitening and GWR geometric in buckets of their own vectors, beside their
    own oracle. `mlp`: train the learned router, and in the first setting its ablations: squared error, and a linear
    map with its cross-entropy. `visited` l of the tables (default: C / 32). `store`: keep buckets,
    routers and curves in the fitted state (all heads, raw keys). `work`: a folder from which a stopped run goes on.
    Errors: BadSetting, BadText, TooLarge, BadModel.
    """
    check_seed(request.seed)
    if request.store and request.heads != "all":
        raise BadSetting("Only routers of all heads can be stored: leave the heads out.")
    if context.browser and (request.store or request.work):
        raise BadSetting("Routers are stored from the command line, not from a page: leave store and work out.")
    lm = context.model(request.model)
    length = request.length or min(lm.max_positions, LONGEST)
    buckets = request.buckets or buckets_for(length)
    _check(lm, request.min_distance, request.sinks, buckets, length, request.prompts, request.visited)
    chosen = heads_of(lm, request.heads)
    cells = _cells(request.min_distance, request.sinks, length, request.grid, request.own)
    sides = sides_of(context, request.texts, request.corpus)
    texts_hash = text_hash(" ".join(text_hash(text) for text in (*sides[0], "|", *sides[1])))
    context.progress(0.0, "cutting the texts into prompts")
    needed = tokens_needed(request.min_distance, request.sinks)
    calibration, test = (prompts_of(lm, side, length, request.prompts, needed) for side in sides)
    rotated = rotated_layers(lm)
    # Where learned routers are kept while the run goes on.
    parts = Parts()
    if request.work:
        make_folder(Path(request.work))
        decides = (
            lm.revision,
            texts_hash,
            request.heads,
            request.min_distance,
            request.sinks,
            buckets,
            length,
            request.prompts,
            request.seed,
        )
        parts = Parts(Path(request.work), text_hash(" ".join(map(str, decides))))
    fitted = calibrate(context, lm, calibration, chosen, rotated, cells, buckets, request.seed, request.mlp, parts)
    curves, micro, counts = score_routers(context, lm, test, fitted)
    documents, budget = len(curves.queries[cells[0]]), request.visited or max(1, buckets // 32)
    source: dict[str, Any] = {"texts": ["TEXT"] * len(request.texts or [])}
    if request.corpus:
        source = {"corpus": "DIR"}
    # The command names no place of this machine.
    again = request.arguments | source | {"model": lm.name, "buckets": buckets, "length": length, "work": None}
    about = protocol(
        "route",
        lm,
        texts_hash,
        sum(len(prompt.ids) for prompt in (*calibration, *test)),
        window=length,
        seed=request.seed,
        kernel=STREAMED,
        command=commandline("route", again),
        unit="documents",
        keys=[text_hash(text) for text in sides[0]],
        documents=[len({prompt.document for prompt in side}) for side in (calibration, test)],
        prompts=[len(calibration), len(test)],
        min_distance=request.min_distance,
        sinks=request.sinks,
        buckets=buckets,
    )
    notes = _notes(calibration, test, documents, length, cells[0], request.mlp)
    beside = Beside(balance_rows(fitted, counts), _timings(fitted, micro), notes)
    stored = Kept(curves, about, beside)
    context.kept["routing"] = (stored.key, stored)
    if request.store:
        notes = [*notes, *_store(context, lm, fitted, stored, length, request.seed, about)]
    parts.clear()
    by_cell = [of_cell(curves, cell, budget) for cell in cells]
    main = by_cell[0]
    return Routed(
        sentence=rows.sentence(main.means, buckets, documents),
        rows=[row for budget in budgets(buckets) for row in rows.head_rows(curves, cells[0], budget)],
        means=main.means,
        curve=main.curve,
        closures=main.closures,
        closure=main.closure,
        heads=main.heads,
        l=main.l,
        queries=main.queries,
        cells=by_cell,
        balance=beside.balance,
        timings=beside.timings,
        notes=notes,
        paper=rows.paper_rows(),
        meaning=MEANING,
        budgets=budgets(buckets),
        buckets=buckets,
        protocol=about,
    )


def _notes(
    calibration: list[Prompt], test: list[Prompt], documents: int, length: int, cell: Cell, mlp: bool
) -> list[str]:
    queries = queries_of(calibration, cell)
    learned = f" (those that are trained step by step from {MOST:,} of them)" if mlp and queries > MOST else ""
    notes = [
        f"{len(calibration)} prompts of at most {length:,} tokens calibrate and {len(test)} of other documents test; "
        f"{state(documents, True, documents >= DOCUMENTS, 'test documents')}.",
        f"Every router learns from the same queries, {queries:,} of each head{learned}.",
    ]
    short = sum(len(prompt.ids) < length for prompt in (*calibration, *test))
    return [*notes, f"{short} prompts are shorter than {length:,} tokens."] if short else notes


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


def of_cell(curves: Curves, cell: Cell, visited: float) -> RoutedCell:
    """What is told of one setting, at `visited` buckets and at every budget."""
    return RoutedCell(
        name=cell.name,
        **asdict(cell),
        l=visited,
        means=rows.mean_rows(curves, cell, visited),
        closure=rows.closure_rows(curves, cell, visited),
        heads=rows.head_table(curves, cell, visited) if cell.partition == RAW else [],
        curve=rows.curve_rows(curves, cell),
        closures=rows.closure_curve(curves, cell),
        queries=int(curves.queries[cell].sum()),
    )


def _timings(fitted: Fitted, micro: dict[str, float]) -> list[RouterTiming]:
    settings = sum(cell.partition == RAW for cell in fitted.routers)
    timings = []
    for kind, microseconds in micro.items():
        # Whitening and the gauge serve all settings, ablations are of one.
        shared = 1 if kind in (*OWN, *ABLATIONS) else settings
        timings.append(RouterTiming(kind, fitted.seconds.get(kind, 0.0) / shared, microseconds))
    return [*timings, RouterTiming("buckets", fitted.seconds["buckets"], None)]


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
