"""Routing at any budget at once, from stored curves or on a reader's own text."""

from dataclasses import asdict

import pandas as pd

from analysis.errors import BadSetting
from analysis.models import Model
from analysis.routers.state import RoutingState
from analysis.runs import Result
from analysis.studies.context import STREAMED, Context, check_seed, protocol, read
from analysis.studies.routing.cells import RAW, Cell, Partition
from analysis.studies.routing.fit import Fitted
from analysis.studies.routing.kept import Kept, stored_curves
from analysis.studies.routing.rows import (
    Draws,
    budget_rows,
    closure_rows,
    head_rows,
    head_table,
    lines,
    mean_rows,
    paper_rows,
    sentence,
)
from analysis.studies.routing.score import balance_rows, score_routers
from analysis.studies.routing.states import state_near
from analysis.studies.routing.texts import Prompt, heads_of, tokens_needed, too_short
from analysis.studies.text.held_out import check_range


def route_at(
    model: str = "demo",
    visited: float | None = None,
    min_distance: int | None = None,
    sinks: int | None = None,
    partition: str = RAW,
    text: str = "",
    seed: int = 0,
    made: str = "",
    *,
    context: Context,
) -> Result:
    """Recall of every router at `visited` buckets, any number from 1 to C (default: C / 32), from the stored curves: no
    pass. Distance and sinks are those of the stored study unless given.

    With a `text` (hash) its own windows are the test: the first time one dense pass each, with the stored routers of
    this distance and these sinks (or the nearest there are, which is noted), after which any budget is at once.
    `made`: the date of the stored curves, so that a request names what answered it; nothing else depends on it.
    numbers: `means`, `closure`, `curve` and `closures` (both at every budget of the paper), `heads` (the paper's table
    2 per head), `lines` (router -> `l recall selectivity`, at every kept budget), `cells` there are and the one shown
    (`min_distance sinks partition`), `buckets`, `l`, `queries`, `documents`, `timings`, `balance`, `paper`, `notes`,
    `sentence`; table `rows` (per head and router).
    Errors: BadSetting, NotFitted, BadText for a text shorter than the minimum distance.
    """
    check_seed(seed)
    lm = context.model(model)
    if None in (min_distance, sinks):
        main = next(iter(stored_curves(context, lm).curves.recall))
        min_distance = main.min_distance if min_distance is None else min_distance
        sinks = main.sinks if sinks is None else sinks
    check_range("The minimum distance", min_distance, 1, 1 << 20)
    check_range("The number of sinks", sinks, 0, 64)
    cell = Cell(min_distance, sinks, partition)
    kept = text_curves(context, lm, text, cell) if text else stored_curves(context, lm)
    curves = kept.curves
    if cell not in curves.recall:
        there = ", ".join(one.name for one in curves.recall)
        raise BadSetting(f"There are no curves for {cell.name}: choose one of {there}.")
    visited = max(1.0, curves.buckets / 32) if visited is None else visited
    if not 1 <= visited <= curves.buckets:
        raise BadSetting(f"{visited:g} buckets were to be visited: choose 1 to {curves.buckets:,}.")
    draws = Draws(len(curves.queries[cell]), seed)
    stamp = (kept.about["date"], kept.key, cell, seed)
    if context.kept.get("routing budgets", ((),))[0] != stamp:
        context.kept["routing budgets"] = (stamp, budget_rows(curves, cell, draws) | {"lines": lines(curves, cell)})
    means = mean_rows(curves, cell, visited, draws)
    numbers = {
        "sentence": sentence(means, curves.buckets, draws.documents),
        "means": means,
        "closure": closure_rows(curves, cell, visited, draws),
        "heads": head_table(curves, cell, visited),
        **context.kept["routing budgets"][1],
        "cells": [{"name": one.name, **asdict(one)} for one in curves.recall],
        **asdict(cell),
        "buckets": curves.buckets,
        "l": visited,
        "queries": int(curves.queries[cell].sum()),
        "documents": draws.documents,
        "paper": paper_rows(),
        **kept.more,
        "protocol": kept.about | {"verb": "route-at", "measured": kept.about["date"]},
    }
    return Result(numbers, {"rows": pd.DataFrame(head_rows(curves, cell, visited, draws))})


def text_curves(context: Context, lm: Model, text: str, cell: Cell) -> Kept:
    """Curves of the stored routers on the windows of a text, each window a document; the last ones stay in memory."""
    if cell.partition != RAW:
        raise BadSetting("A text is tested in buckets of raw keys: choose that partition.")
    state = state_near(context, lm, cell.min_distance, cell.sinks)
    stamp = (lm.revision, text, cell, id(state))
    if context.kept.get("routing text", ((),))[0] != stamp:
        reading = read(context, lm, text)
        needed = tokens_needed(cell.min_distance, cell.sinks)
        windows = [ids for ids in reading.windows if len(ids) >= needed]
        if not windows:
            raise too_short(reading.name, max(map(len, reading.windows)), needed)
        prompts = [Prompt(at, ids) for at, ids in enumerate(windows)]
        fitted = from_state(lm, state, cell)
        curves, micro, counts = score_routers(context, lm, prompts, fitted, 0.0)
        more = {
            "balance": balance_rows(fitted, counts),
            "timings": [{"router": kind, "fit_seconds": None, "route_us": time} for kind, time in micro.items()],
            "notes": [*reading.notes, *fitted_for(state, cell)],
        }
        about = protocol(
            "route-at", lm, text, sum(map(len, windows)), seed=state.settings.seed, kernel=STREAMED, unit="windows",
            routers=state.settings.name,
        )  # fmt: skip
        context.kept["routing text"] = (stamp, Kept(curves, about, more))
    return context.kept["routing text"][1]


def fitted_for(state: RoutingState, cell: Cell) -> list[str]:
    """One sentence where routers are tried at another distance, or with other sinks, than they were fitted for."""
    made = state.settings
    if (made.min_distance, made.sinks) == (cell.min_distance, cell.sinks):
        return []
    return [
        f"The routers were fitted for keys at least {made.min_distance:,} back, the first {made.sinks} left out, and "
        f"are tried here at {cell.min_distance:,} with {cell.sinks} left out."
    ]


def from_state(lm: Model, state: RoutingState, cell: Cell) -> Fitted:
    """The stored routers of all heads, with the oracle, as what a test pass takes."""
    state.check(lm.num_layers, lm.num_heads, lm.num_kv_heads, lm.head_dim)
    state.to(lm.device)
    heads = heads_of(lm, "all")
    routers = {layer: {kind: state.router(kind, layer, lm.num_heads) for kind in state.kinds} for layer in heads}
    partition = Partition(RAW, {layer: state.centroids(layer) for layer in heads})
    return Fitted(heads, state.settings.rotated, {RAW: partition}, {cell: routers})
