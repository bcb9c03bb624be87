"""Routing at any budget at once, from stored curves or on a reader's own text."""

from dataclasses import asdict

import pandas as pd

from analysis.errors import BadSetting
from analysis.models import Model
from analysis.routers.state import RoutingState
from analysis.runs import Result
from analysis.studies.context import STREAMED, Context, check_seed, protocol, read
from analysis.studies.route_cells import RAW, Cell, Partition
from analysis.studies.route_fit import Fitted
from analysis.studies.route_kept import Kept, stored_curves
from analysis.studies.route_rows import Draws, closure_rows, head_rows, head_table, lines, mean_rows, sentence
from analysis.studies.route_score import score_routers
from analysis.studies.route_states import state_at
from analysis.studies.route_texts import Prompt, heads_of, tokens_needed, too_short


def route_at(
    model: str = "demo",
    visited: float = 2.0,
    min_distance: int = 64,
    sinks: int = 0,
    partition: str = RAW,
    text: str = "",
    seed: int = 0,
    *,
    context: Context,
) -> Result:
    """Recall of every router at `visited` buckets, any number from 1 to C, from the stored curves: no pass.

    With a `text` (hash) its own windows are the test: the first time one dense pass each, with the stored routers of
    this distance and these sinks, after which any budget is at once.
    numbers: `means`, `closure`, `heads` (the paper's table 2 per head), `lines` (router -> `l recall selectivity`, at
    every kept budget), `cells` there are, `buckets`, `l`, `queries`, `documents`, `sentence`; table `rows` (per head
    and router). Errors: BadSetting, NotFitted, BadText for a text shorter than the minimum distance.
    """
    check_seed(seed)
    lm = context.model(model)
    cell = Cell(min_distance, sinks, partition)
    kept = text_curves(context, lm, text, cell) if text else stored_curves(context, lm)
    curves = kept.curves
    if cell not in curves.recall:
        there = ", ".join(one.name for one in curves.recall)
        raise BadSetting(f"There are no curves for {cell.name}: choose one of {there}.")
    if not 1 <= visited <= curves.buckets:
        raise BadSetting(f"{visited:g} buckets were to be visited: choose 1 to {curves.buckets:,}.")
    draws = Draws(len(curves.queries[cell]), seed)
    means = mean_rows(curves, cell, visited, draws)
    numbers = {
        "sentence": sentence(means, curves.buckets, draws.documents),
        "means": means,
        "closure": closure_rows(curves, cell, visited, draws),
        "heads": head_table(curves, cell, visited),
        "lines": lines(curves, cell),
        "cells": [{"name": one.name, **asdict(one)} for one in curves.recall],
        "buckets": curves.buckets,
        "l": visited,
        "queries": int(curves.queries[cell].sum()),
        "documents": draws.documents,
        "protocol": kept.about | {"verb": "route-at", "measured": kept.about["date"]},
    }
    return Result(numbers, {"rows": pd.DataFrame(head_rows(curves, cell, visited, draws))})


def text_curves(context: Context, lm: Model, text: str, cell: Cell) -> Kept:
    """Curves of the stored routers on the windows of a text, each window a document; the last ones stay in memory."""
    state = state_at(context, lm, cell.min_distance, cell.sinks)
    stamp = (lm.revision, text, cell, id(state))
    if context.kept.get("routing text", ((),))[0] != stamp:
        reading = read(context, lm, text)
        needed = tokens_needed(cell.min_distance, cell.sinks)
        windows = [ids for ids in reading.windows if len(ids) >= needed]
        if not windows:
            raise too_short(reading.name, max(map(len, reading.windows)), needed)
        prompts = [Prompt(at, ids) for at, ids in enumerate(windows)]
        curves, _, _ = score_routers(context, lm, prompts, from_state(lm, state, cell), 0.0)
        about = protocol(
            "route-at", lm, text, sum(map(len, windows)), seed=state.settings.seed, kernel=STREAMED, unit="windows",
            routers=state.settings.name,
        )  # fmt: skip
        context.kept["routing text"] = (stamp, Kept(curves, about))
    return context.kept["routing text"][1]


def from_state(lm: Model, state: RoutingState, cell: Cell) -> Fitted:
    """The stored routers of all heads, with the oracle, as what a test pass takes."""
    state.check(lm.num_layers, lm.num_heads, lm.num_kv_heads, lm.head_dim)
    state.to(lm.device)
    heads = heads_of(lm, "all")
    routers = {layer: {kind: state.router(kind, layer, lm.num_heads) for kind in state.kinds} for layer in heads}
    partition = Partition(RAW, {layer: state.centroids(layer) for layer in heads})
    return Fitted(heads, state.settings.rotated, {RAW: partition}, {cell: routers})
