"""Routing at any budget at once, from stored curves or on a reader's own text; the buckets that one query visits."""

from dataclasses import asdict, dataclass

import numpy as np
import torch
from pandas import DataFrame
from torch import Tensor

from ...answer import frame
from ...commands.routing import RouteAt, RouteVisit
from ...errors import BadSetting
from ...fitted import FOLDER, Fitted
from ...indexers import INDEXERS
from ...indexers.base import Inputs
from ...indexers.fit import reachable
from ...indexers.reading import read_layers
from ...indexers.sizes import Sizes
from ...indexers.state import METHOD, unpacked
from ...metrics.intervals import BLOCKS, DOCUMENTS
from ...models import Model
from ...routers.routing_state import RoutingState
from ...seam.attention import Block
from ..context import STREAMED, Context, protocol, read
from ..text.held_out import check_range
from ..text.states import check_head, states_of, telling_query
from ..text.text import token_table
from .cells import EMPTY, FAR, RAW, Cell, LayerView, Partition, cell_counts, cell_masses
from .fit import Fitted as FittedRouters
from .indexers import token_scores
from .passes import read_prompt
from .results import Beside, NamedCell, RoutedAt, VisitedBuckets, VisitedQuery, tables_of
from .rows import NAMES, CellRows, HeadRow, paper_rows, sentence
from .score import RouterTiming, route_scores, score_routers
from .states import Kept, calibrated_on, state_near, stored_curves
from .texts import Prompt, heads_of, too_short


def route_at(request: RouteAt, *, context: Context) -> RoutedAt:
    """Recall of every router at any number of buckets, from the stored curves: no pass. Distance and sinks are those of
    the stored study unless given. The windows of a text are the test where one is named: the first time one dense pass
    each, with the stored routers of this distance and these sinks (or the nearest there are, which is noted). Errors:
    BadSetting, NotFitted, BadText for a text shorter than the minimum distance."""
    lm = context.model(request.model)
    min_distance, sinks = request.min_distance, request.sinks
    if min_distance is None or sinks is None:
        main = next(iter(stored_curves(context, lm).curves.recall))
        min_distance = main.min_distance if min_distance is None else min_distance
        sinks = main.sinks if sinks is None else sinks
    cell = _cell(min_distance, sinks, request.partition, request.recall_of)
    stored = text_curves(context, lm, request.text, cell) if request.text else stored_curves(context, lm)
    curves = stored.curves
    if cell not in curves.recall:
        names = ", ".join(other.name for other in curves.recall)
        raise BadSetting(f"There are no curves for {cell.name}: choose one of {names}.")
    visited = max(1.0, curves.buckets / 32) if request.visited is None else request.visited
    check_range("The number of buckets to visit", visited, 1, curves.buckets)
    documents, unit = len(curves.queries[cell]), stored.about.get("unit", "documents")
    rows = CellRows(curves, cell, DOCUMENTS if unit == "documents" else BLOCKS)
    # Every budget of the paper takes longer than the rest, and a slider of `visited` changes none of them.
    stamp = (stored.about["date"], stored.key, cell, request.seed)
    at_budgets, lines = context.once("routing budgets", stamp, lambda: (rows.at_budgets(), rows.lines()))
    tables = tables_of(rows, cell, visited, at_budgets)
    unit_words = unit if unit == "documents" else f"{unit} of this text"
    return RoutedAt(
        **tables,
        **vars(stored.beside),
        **asdict(cell),
        sentence=sentence(tables["means"], curves.buckets, documents, unit_words, cell.recall_of),
        lines=lines,
        cells=[NamedCell(name=other.name, **asdict(other)) for other in curves.recall],
        buckets=curves.buckets,
        documents=documents,
        paper=paper_rows(),
        rows=frame(HeadRow, rows.heads(visited)),
        protocol=stored.about | {"verb": "route-at", "measured": stored.about["date"]},
    )


def _cell(min_distance: int, sinks: int, partition: str = RAW, recall_of: str = FAR) -> Cell:
    check_range("The minimum distance", min_distance, 1, 1 << 20)
    check_range("The number of sinks", sinks, 0, 64)
    return Cell(min_distance, sinks, partition, recall_of)


def text_curves(context: Context, lm: Model, text: str, cell: Cell) -> Kept:
    """Curves of the stored routers on the windows of a text, each window a document; the last ones stay in memory."""
    if cell.partition != RAW:
        raise BadSetting("A text is tested in buckets of raw keys: choose that partition.")
    state = state_near(context, lm, cell)

    def measured() -> Kept:
        reading = read(context, lm, text)
        windows = [ids for ids in reading.windows if len(ids) >= cell.tokens_needed]
        if not windows:
            raise too_short(reading.name, max(map(len, reading.windows)), cell.tokens_needed)
        fitted, prompts = from_state(lm, state, cell), [Prompt(number, ids) for number, ids in enumerate(windows)]
        curves, microseconds, balance = score_routers(context, lm, prompts, fitted, 0.0)
        timings = [RouterTiming(kind, None, route_us) for kind, route_us in microseconds.items()]
        settings = {"seed": state.settings.seed, "kernel": STREAMED, "unit": "windows", "routers": state.settings.name}
        about = protocol("route-at", lm, text, sum(map(len, windows)), **settings)
        notes = [*reading.notes, *fitted_for(state, cell)]
        if text in calibrated_on(state):
            notes.append("The routers were fitted on this very text: on others they find less.")
        return Kept(curves, about, Beside(balance, timings, notes))

    return context.once("routing text", (lm.revision, text, cell, id(state)), measured)


def fitted_for(state: RoutingState, cell: Cell) -> list[str]:
    """One sentence where routers are tried at another distance, or with other sinks, than they were fitted for."""
    settings = state.settings
    if (settings.min_distance, settings.sinks) == (cell.min_distance, cell.sinks):
        return []
    return [
        f"The routers were fitted for keys at least {settings.min_distance:,} back, the first {settings.sinks} left "
        f"out, and are tried here at {cell.min_distance:,} with {cell.sinks} left out."
    ]


def from_state(lm: Model, state: RoutingState, cell: Cell) -> FittedRouters:
    """The stored routers of all heads, with the oracle, as what a test pass takes."""
    state.check(lm.num_layers, lm.num_heads, lm.num_kv_heads, lm.head_dim)
    # Once, where the model is: a slider asks for the same routers again and again.
    state.to(lm.device)
    heads = heads_of(lm)
    routers = {layer: {kind: state.router(kind, layer, lm.num_heads) for kind in state.kinds} for layer in heads}
    partition = Partition(RAW, {layer: state.centroids(layer) for layer in heads})
    return FittedRouters(heads, state.settings.rotated, {RAW: partition}, {cell: routers})


@torch.no_grad()
def route_visit(request: RouteVisit, *, context: Context) -> VisitedBuckets:
    """The buckets that one query of a text visits, with the attention it really has, to paint on the text; or the keys
    that an indexer which was fitted for this model offers its head, each a bucket of its own. The query is by default a
    whole word of the first window with the head's strongest far read. Errors: BadSetting, BadText, NotFitted."""
    lm = context.model(request.model)
    cell, head = _cell(request.min_distance, request.sinks), request.head
    layer = check_head(lm, request.layer, head)
    look: _ByRouter | _ByIndexer
    if request.router in INDEXERS:
        look = _ByIndexer(context, lm, request.router, cell, layer, head)
    else:
        look = _ByRouter(context, lm, request.router, cell, layer, head)
    reading = read(context, lm, request.text)
    words = token_table(reading)
    position = request.position
    if position is None:
        states = states_of(context, lm, reading.windows[0], request.layer)[request.layer]
        position = telling_query(states, head, words, 0, cell.tokens_needed)
    check_range("The position", position, 0, len(reading.tokens) - 1)
    start = next(a for a, b in reading.tokens.spans if a <= position < b)
    place = position - start
    if place + 1 < cell.tokens_needed:
        raise too_short(f"The text before token {position:,}", place + 1, cell.tokens_needed)
    query = look.at(reading.tokens.ids[start : position + 1])
    scores, labels, mass, attention = query.scores, query.labels, query.mass, query.attention
    buckets = len(scores)
    check_range("The number of buckets to visit", request.visited, 1, buckets)
    order = scores.sort(stable=True, descending=True).indices
    rank = torch.empty_like(order).scatter_(0, order, torch.arange(buckets))
    visited = rank < request.visited
    keys = torch.arange(place + 1)
    far = query.visible & (keys >= request.sinks) & (place - keys >= request.min_distance)
    # Outside of the query's window, and after it, nothing is in reach.
    for name, values, absent in (
        ("bucket", labels, -1),
        ("visited", visited[labels], False),
        ("far", far, False),
        ("attention", attention, 0.0),
    ):
        words[name] = absent
        words.loc[start:position, name] = values.numpy()
    columns = {"bucket": torch.arange(buckets), "score": scores, "rank": rank, "visited": visited}
    columns |= {"keys": torch.bincount(labels[far], minlength=buckets), "mass": mass}
    bucket_table = DataFrame({name: values.numpy() for name, values in columns.items()})
    recall, best = float(mass[visited].sum()), float(mass.topk(request.visited).values.sum())
    word = words["word"].iloc[position]
    nothing_far = [] if float(mass.sum()) > 0 else ["This query has no attention that far back: nothing can be found."]
    about = {"kernel": STREAMED, "min_distance": request.min_distance}
    return VisitedBuckets(
        recall=recall,
        best=best,
        far_mass=float(attention[far].sum()),
        selectivity=float(query.share[visited].sum()),
        query=VisitedQuery(position, word, request.layer, head, request.router),
        sentence=f"{NAMES[request.router]} {look.does(word, request.visited, buckets)} and finds {recall:.0%} of what "
        f"this head reads at least {request.min_distance} tokens back; the best {request.visited} hold {best:.0%}.",
        buckets=buckets,
        start=start,
        notes=[*reading.notes, *nothing_far, *look.notes],
        tokens=words,
        bucket_table=bucket_table.sort_values("rank", ignore_index=True),
        protocol=protocol("route-visit", lm, request.text, len(reading.tokens), **about),
    )


@dataclass
class _Query:
    """What the last query of a prompt sees: which bucket every key lies in, `labels` [T], the router's `scores` [C],
    `mass` [C] of its attention and `share` [C] of the far keys in each, its `attention` [T], and the keys that are
    `visible` [T]."""

    labels: Tensor
    scores: Tensor
    mass: Tensor
    share: Tensor
    attention: Tensor
    visible: Tensor


class _ByRouter:
    """A stored router of one head."""

    def __init__(self, context: Context, lm: Model, kind: str, cell: Cell, layer: int, head: int) -> None:
        self.lm, self.cell, self.layer, self.head = lm, cell, layer, head
        state = state_near(context, lm, cell)
        self.fitted = from_state(lm, state, cell)
        self.notes = fitted_for(state, cell)
        routers, one = self.fitted.routers[cell][layer], slice(head, head + 1)
        if kind not in routers:
            raise BadSetting(f"There is no router {kind[:40]!r}: choose one of {', '.join(routers)}.")
        router = type(routers[kind])(routers[kind].centroids[one], routers[kind].seed)
        self.router = router.restore({name: value[one] for name, value in routers[kind].tensors().items()})

    @staticmethod
    def does(word: str, visited: int, buckets: int) -> str:
        """What it does with a word, of so many buckets."""
        return f"sends {word!r} to {visited} of {buckets} buckets"

    def at(self, ids: np.ndarray) -> _Query:
        """One dense pass over a prompt whose last token is the query."""
        views: list[LayerView] = []
        queries: list[_Query] = []

        def take(of_layer: int, q: Tensor, k: Tensor) -> None:
            if of_layer == self.layer:
                views.append(LayerView.of(self.layer, [self.head], q, k, [self.fitted.partitions[RAW]]))

        def watch(block: Block, probabilities: Tensor) -> None:
            if block.layer == self.layer and int(block.rows[-1]) == len(ids) - 1:
                mass = cell_masses(views[0], block, probabilities[0], [self.cell])[self.cell][:, -1:]
                share = cell_counts(views[0], block, [self.cell])[self.cell][0, -1].cpu()
                visible = block.visible.expand_as(block.scores)[0, self.head, -1, : len(ids)].cpu()
                attention = probabilities[0, self.head, -1, : len(ids)].cpu()
                scores = route_scores(self.router, views[0], block.rows[-1:], self.cell, mass, self.fitted)[0, 0].cpu()
                labels = views[0].labels[RAW][0][: len(ids)].cpu()
                queries.append(_Query(labels, scores, mass[0, 0].cpu(), share, attention, visible))

        read_prompt(self.lm, ids, self.fitted.rotated, take, watch)
        return queries[0]


class _ByIndexer:
    """A fitted indexer, for the head of a layer: every key is a bucket, and what is not far comes last."""

    def __init__(self, context: Context, lm: Model, kind: str, cell: Cell, layer: int, head: int) -> None:
        self.lm, self.cell, self.layer, self.head = lm, cell, layer, head
        places = [folder / FOLDER / f"{METHOD}.safetensors" for folder in context.state_dirs(lm)]
        fitted = Fitted.load(next((place for place in places if place.is_file()), places[0]))
        self.indexer = unpacked(fitted.to(lm.device), kind, lm.num_layers)[0][layer]
        self.notes: list[str] = []

    @staticmethod
    def does(word: str, visited: int, buckets: int) -> str:
        """What it does with a word, of so many keys."""
        return f"offers {word!r} {visited} of {buckets} keys"

    def at(self, ids: np.ndarray) -> _Query:
        """One dense pass over a prompt whose last token is the query."""
        queries: list[_Query] = []
        held: dict[str, Inputs] = {}

        def take(layer: int, inputs: dict[str, Inputs]) -> None:
            if layer == self.layer:
                held.update(inputs)

        def watch(layer: int, rows: Tensor, attention: Tensor) -> None:
            if layer == self.layer and int(rows[-1]) == len(ids) - 1:
                far = reachable(rows[-1:], len(ids), Sizes(min_distance=self.cell.min_distance, sinks=self.cell.sinks))[
                    0
                ]
                scores = token_scores(self.indexer, held, rows[-1:], len(ids))[:, 0]
                scores = scores[self.head * len(scores) // self.lm.num_heads].masked_fill(~far, -torch.inf)
                weights = attention[self.head, -1]
                mass = weights * far / (weights * far).sum().clamp(min=EMPTY)
                share = far / far.sum().clamp(min=1)
                parts = (torch.arange(len(ids)), scores, mass, share, weights, torch.ones_like(far))
                queries.append(_Query(*(part.cpu() for part in parts)))

        read_layers(self.lm, ids, {self.indexer.reads}, take, watch)
        return queries[0]
