"""Routing at any budget at once, from stored curves or on a reader's own text; the buckets that one query visits."""

from dataclasses import asdict, dataclass

import numpy as np
import torch
from pandas import DataFrame
from torch import Tensor

from ...answer import frame
from ...commands.routing import RouteAt, RouteVisit
from ...errors import BadSetting
from ...metrics.intervals import BLOCKS, DOCUMENTS
from ...models import Model
from ...routers.state import RoutingState
from ...seam.attention import Block
from ..context import STREAMED, Context, check_seed, protocol, read
from ..text.held_out import check_range
from ..text.query import telling_query
from ..text.states import states_of, window_of
from ..text.text import token_table
from . import rows
from .cells import RAW, Cell, LayerView, Partition, cell_counts, cell_masses
from .fit import Fitted
from .passes import read_prompt
from .results import NamedCell, RoutedAt, VisitedBuckets, VisitedQuery
from .rows import HeadRow
from .score import RouterTiming, balance_rows, route_scores, score_routers
from .states import Beside, Kept, state_near, stored_curves
from .texts import Prompt, heads_of, tokens_needed, too_short


def route_at(request: RouteAt, *, context: Context) -> RoutedAt:
    """Recall of every router at `visited` buckets, any number from 1 to C (default: C / 32), from the stored curves: no
    pass. Distance and sinks are those of the stored study unless given.

    With a `text` (hash) its own windows are the test: the first time one dense pass each, with the stored routers of
    this distance and these sinks (or the nearest there are, which is noted), after which any budget is at once.
    `made`: the date of the stored curves, so that a request names what answered it; nothing else depends on it.
    Errors: BadSetting, NotFitted, BadText for a text shorter than the minimum distance.
    """
    min_distance, sinks = request.min_distance, request.sinks
    check_seed(request.seed)
    lm = context.model(request.model)
    if min_distance is None or sinks is None:
        main = next(iter(stored_curves(context, lm).curves.recall))
        min_distance = main.min_distance if min_distance is None else min_distance
        sinks = main.sinks if sinks is None else sinks
    check_range("The minimum distance", min_distance, 1, 1 << 20)
    check_range("The number of sinks", sinks, 0, 64)
    cell = Cell(min_distance, sinks, request.partition)
    stored = text_curves(context, lm, request.text, cell) if request.text else stored_curves(context, lm)
    curves = stored.curves
    if cell not in curves.recall:
        names = ", ".join(other.name for other in curves.recall)
        raise BadSetting(f"There are no curves for {cell.name}: choose one of {names}.")
    visited = max(1.0, curves.buckets / 32) if request.visited is None else request.visited
    if not 1 <= visited <= curves.buckets:
        raise BadSetting(f"{visited:g} buckets were to be visited: choose 1 to {curves.buckets:,}.")
    documents, unit = len(curves.queries[cell]), stored.about.get("unit", "documents")
    fewest = DOCUMENTS if unit == "documents" else BLOCKS
    stamp = (stored.about["date"], stored.key, cell, request.seed)
    # Every budget of the paper takes longer than the rest, and a slider of `visited` changes none of them.
    curve, closures, lines = context.once(
        "routing budgets",
        stamp,
        lambda: (
            rows.curve_rows(curves, cell, fewest),
            rows.closure_curve(curves, cell, fewest),
            rows.lines(curves, cell),
        ),
    )
    means = rows.mean_rows(curves, cell, visited, fewest)
    unit_words = unit if unit == "documents" else f"{unit} of this text"
    return RoutedAt(
        sentence=rows.sentence(means, curves.buckets, documents, unit_words),
        means=means,
        closure=rows.closure_rows(curves, cell, visited, fewest),
        heads=rows.head_table(curves, cell, visited),
        curve=curve,
        closures=closures,
        lines=lines,
        cells=[NamedCell(name=other.name, **asdict(other)) for other in curves.recall],
        **asdict(cell),
        buckets=curves.buckets,
        l=visited,
        queries=int(curves.queries[cell].sum()),
        documents=documents,
        paper=rows.paper_rows(),
        **vars(stored.beside),
        rows=frame(HeadRow, rows.head_rows(curves, cell, visited, fewest)),
        protocol=stored.about | {"verb": "route-at", "measured": stored.about["date"]},
    )


def text_curves(context: Context, lm: Model, text: str, cell: Cell) -> Kept:
    """Curves of the stored routers on the windows of a text, each window a document; the last ones stay in memory."""
    if cell.partition != RAW:
        raise BadSetting("A text is tested in buckets of raw keys: choose that partition.")
    state = state_near(context, lm, cell.min_distance, cell.sinks)
    stamp = (lm.revision, text, cell, id(state))
    return context.once("routing text", stamp, lambda: _measured(context, lm, text, cell, state))


def _measured(context: Context, lm: Model, text: str, cell: Cell, state: RoutingState) -> Kept:
    reading = read(context, lm, text)
    needed = tokens_needed(cell.min_distance, cell.sinks)
    windows = [ids for ids in reading.windows if len(ids) >= needed]
    if not windows:
        raise too_short(reading.name, max(map(len, reading.windows)), needed)
    fitted, prompts = from_state(lm, state, cell), [Prompt(number, ids) for number, ids in enumerate(windows)]
    curves, micro, counts = score_routers(context, lm, prompts, fitted, 0.0)
    beside = Beside(
        balance=balance_rows(fitted, counts),
        timings=[RouterTiming(kind, None, microseconds) for kind, microseconds in micro.items()],
        notes=[*reading.notes, *fitted_for(state, cell)],
    )
    settings = {"seed": state.settings.seed, "kernel": STREAMED, "unit": "windows", "routers": state.settings.name}
    return Kept(curves, protocol("route-at", lm, text, sum(map(len, windows)), **settings), beside)


def fitted_for(state: RoutingState, cell: Cell) -> list[str]:
    """One sentence where routers are tried at another distance, or with other sinks, than they were fitted for."""
    settings = state.settings
    if (settings.min_distance, settings.sinks) == (cell.min_distance, cell.sinks):
        return []
    return [
        f"The routers were fitted for keys at least {settings.min_distance:,} back, the first {settings.sinks} left "
        f"out, and are tried here at {cell.min_distance:,} with {cell.sinks} left out."
    ]


def from_state(lm: Model, state: RoutingState, cell: Cell) -> Fitted:
    """The stored routers of all heads, with the oracle, as what a test pass takes."""
    state.check(lm.num_layers, lm.num_heads, lm.num_kv_heads, lm.head_dim)
    state.to(lm.device)
    heads = heads_of(lm, "all")
    routers = {layer: {kind: state.router(kind, layer, lm.num_heads) for kind in state.kinds} for layer in heads}
    partition = Partition(RAW, {layer: state.centroids(layer) for layer in heads})
    return Fitted(heads, state.settings.rotated, {RAW: partition}, {cell: routers})


@torch.no_grad()
def route_visit(request: RouteVisit, *, context: Context) -> VisitedBuckets:
    """The buckets that one query of a text visits, with the attention it really has, to paint on the text.

    `position` of the query among the text's tokens (default: a whole word of the first window with the head's
    strongest far read), in `layer` and `head`. `made` as in `route-at`: it only names what answered.
    Errors: BadSetting, BadText.
    """
    lm = context.model(request.model)
    cell, layer, head = Cell(request.min_distance, request.sinks), request.layer, request.head
    needed = tokens_needed(request.min_distance, request.sinks)
    check_range("The minimum distance", request.min_distance, 1, 1 << 20)
    check_range("The number of sinks", request.sinks, 0, 64)
    state = state_near(context, lm, request.min_distance, request.sinks)
    fitted = from_state(lm, state, cell)
    check_range("The layer", layer, 0, lm.num_layers - 1)
    check_range("The head", head, 0, lm.num_heads - 1)
    buckets = fitted.partitions[RAW].centroids[layer].shape[1]
    check_range("The number of buckets to visit", request.visited, 1, buckets)
    if request.router not in fitted.routers[cell][layer]:
        names = ", ".join(fitted.routers[cell][layer])
        raise BadSetting(f"There is no router {request.router[:40]!r}: choose one of {names}.")
    reading = read(context, lm, request.text)
    words = token_table(reading)
    position = request.position
    if position is None:
        _, ids = window_of(reading, 0)
        states = states_of(context, lm, ids, layer)[layer]
        position = telling_query(states, head, words, 0, needed)
    check_range("The position", position, 0, len(reading.tokens) - 1)
    start = next(a for a, b in reading.tokens.spans if a <= position < b)
    place = position - start
    if place + 1 < needed:
        raise too_short(f"The text before token {position:,}", place + 1, needed)
    query = _read_query(lm, reading.tokens.ids[start : position + 1], fitted, cell, layer, head)
    mass = query.mass
    all_heads = fitted.routers[cell][layer][request.router]
    of_head = type(all_heads)(all_heads.centroids[head : head + 1], all_heads.seed)
    of_head = of_head.restore({name: value[head : head + 1] for name, value in all_heads.tensors().items()})
    rows_of_query = torch.tensor([place], device=mass.device)
    scores = route_scores(of_head, query.view, rows_of_query, cell, mass, fitted)[0, 0]
    order = scores.sort(stable=True, descending=True).indices
    rank = torch.empty_like(order).scatter_(0, order, torch.arange(buckets, device=order.device)).cpu()
    labels = query.view.labels[RAW][0][: place + 1].cpu()
    mass, share, scores = mass[0, 0].cpu(), query.share.cpu(), scores.cpu()
    attention, keys_back = query.attention[: place + 1].cpu(), place - torch.arange(place + 1)
    far = (
        query.visible[: place + 1].cpu()
        & (torch.arange(place + 1) >= request.sinks)
        & (keys_back >= request.min_distance)
    )
    # Outside of the query's window, and after it, nothing is in reach.
    for name, values, absent in (
        ("bucket", labels, -1),
        ("visited", rank[labels] < request.visited, False),
        ("far", far, False),
        ("attention", attention, 0.0),
    ):
        words[name] = absent
        words.loc[start:position, name] = values.numpy()
    bucket_table = DataFrame(
        {
            "bucket": range(buckets),
            "score": scores.numpy(),
            "rank": rank.numpy(),
            "visited": (rank < request.visited).numpy(),
            "keys": torch.bincount(labels[far], minlength=buckets).numpy(),
            "mass": mass.numpy(),
        }
    )
    recall, best = float(mass[rank < request.visited].sum()), float(mass.topk(request.visited).values.sum())
    word = words["word"].iloc[position]
    nothing_far = [] if float(mass.sum()) > 0 else ["This query has no attention that far back: nothing can be found."]
    return VisitedBuckets(
        recall=recall,
        best=best,
        far_mass=float(attention[far].sum()),
        selectivity=float(share[rank < request.visited].sum()),
        query=VisitedQuery(position, word, layer, head, request.router),
        sentence=f"{rows.NAMES[request.router]} sends {word!r} to {request.visited} of {buckets} buckets and finds "
        f"{recall:.0%} of what this head reads at least {request.min_distance} tokens back; the best "
        f"{request.visited} hold {best:.0%}.",
        buckets=buckets,
        start=start,
        notes=[*reading.notes, *nothing_far, *fitted_for(state, cell)],
        tokens=words,
        bucket_table=bucket_table.sort_values("rank", ignore_index=True),
        protocol=protocol(
            "route-visit", lm, request.text, len(reading.tokens), kernel=STREAMED, min_distance=request.min_distance
        ),
    )


@dataclass
class _Query:
    """What the last query of a prompt sees: `mass` [1, 1, C] of its attention and `share` [C] of the far keys in each
    bucket, its `attention` [T] and which keys are `visible` [T]."""

    view: LayerView
    mass: Tensor
    share: Tensor
    attention: Tensor
    visible: Tensor


def _read_query(lm: Model, ids: np.ndarray, fitted: Fitted, cell: Cell, layer: int, head: int) -> _Query:
    """One dense pass over a prompt whose last token is the query."""
    views: list[LayerView] = []
    queries: list[_Query] = []

    def take(of_layer: int, q: Tensor, k: Tensor) -> None:
        if of_layer == layer:
            views.append(LayerView.of(layer, [head], len(q), q, k, [fitted.partitions[RAW]]))

    def watch(block: Block, probabilities: Tensor) -> None:
        if block.layer == layer and int(block.rows[-1]) == len(ids) - 1:
            mass = cell_masses(views[0], block, probabilities[0], [cell])[cell][:, -1:]
            share = cell_counts(views[0], block, [cell])[cell][0, -1]
            visible = block.visible.expand_as(block.scores)[0, head, -1]
            queries.append(_Query(views[0], mass, share, probabilities[0, head, -1], visible))

    read_prompt(lm, ids, fitted.rotated, take, watch)
    return queries[0]
