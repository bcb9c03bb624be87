"""Fitting an indexer to the attention of a frozen model: streamed targets of some queries of each document, the
divergence to them, an early stop on documents that trained nothing; low rank in closed form."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from ..errors import NotFitted
from ..kernels.blocks import in_blocks
from ..kernels.pool import alone
from . import INDEXERS
from .base import ALL, Indexer, Inputs, State, Tables, whole_scores
from .sizes import Sizes
from .tokens import LowRankMoments

# Documents of a step, steps between two looks at those that select, and looks without a gain before it stops.
BATCH, LOOK, PATIENCE = 2, 50, 4
# One document of so many selects.
SELECTS = 5
States = Callable[[Tensor], tuple[Tensor, Tensor]]


class Look(NamedTuple):
    """A point of a learning curve: nats of divergence, of the steps since the last look and on selection documents."""

    step: int
    train: float | None
    selection: float


@dataclass
class FittedIndexer:
    """An indexer of one layer and how it was learned; `state` has the names of its class."""

    indexer: Indexer
    sizes: Sizes
    curve: list[Look] = field(default_factory=list)
    states: States | None = None

    @property
    def state(self) -> State:
        """Its tensors."""
        return self.indexer.state

    @torch.no_grad()
    def scores(self, hidden: Tensor) -> Tensor:
        """Of a text's hidden states [T, d], as `indexer_scores`, with its own rotary tables: [T, T], [T, groups] of
        qsa, [groups, T, T] of m3; seer [key-value heads, T, blocks], moba [heads, T, blocks], low rank [T, T]."""
        queries, keys = self.states(hidden) if self.states else (None, None)
        tables, indexer = self.indexer.tables(torch.arange(len(hidden), device=hidden.device)), self.indexer
        if indexer.kind == "m3":
            # Before the maximum over blocks, as `indexer_scores` has it.
            indexer = type(indexer)(indexer.state, 1, indexer.eps)
        return whole_scores(indexer, Inputs(hidden, None, queries, keys), tables)


class Document(NamedTuple):
    """What is learned from one document: its inputs in 16 bits, of the layer's own queries those at `rows` [m] alone,
    and where their attention goes: `target` [S, m, U] in 16 bits, rows that add up to 1 or to 0."""

    inputs: Inputs
    rows: Tensor
    target: Tensor


class Lesson(NamedTuple):
    """A document as every step takes it: float32, with what no step changes. `allowed` [m, U]: the units that may be
    chosen; `entropy`: of the targets, nats, summed over the `learned` queries that have one."""

    inputs: Inputs
    rows: Tensor
    tables: Tables
    target: Tensor
    allowed: Tensor
    entropy: Tensor
    learned: Tensor


def spread_rows(first: int, tokens: int, count: int) -> Tensor:
    """At most `count` evenly spaced places from `first` to the last token, int64."""
    if tokens <= first:
        return torch.zeros(0, dtype=torch.long)
    return torch.linspace(first, tokens - 1, min(count, tokens - first)).round().long().unique()


def reachable(rows: Tensor, tokens: int, sizes: Sizes) -> Tensor:
    """bool [n, T]: the keys that may be chosen for queries at places `rows`."""
    places = torch.arange(tokens, device=rows.device)
    return (rows[:, None] - places >= sizes.min_distance) & (places >= sizes.sinks)


def candidates(indexer: Indexer, allowed: Tensor, rows: Tensor) -> Tensor:
    """bool [n, U]: the units with a key that may be chosen, bool [n, T], and a score."""
    tokens = allowed.shape[1]
    return in_blocks(allowed, indexer.unit).any(-1) & ~indexer.unseen(rows, tokens)


def target_of(indexer: Indexer, attention: Tensor, allowed: Tensor, rows: Tensor, kv_heads: int) -> Tensor:
    """Where the attention [H, n, T] of queries goes, of each selection and unit: [S, n, U], rows of 1 or 0.

    Summed over the heads that share a selection and the keys of a unit; SeerAttention has the maximum over both.
    """
    weights = attention * allowed
    selections = {"layer": 1, "group": kv_heads, "head": len(attention)}[indexer.shares]
    shared = weights.unflatten(0, (selections, -1))  # [S, H / S, n, T]
    blocks = in_blocks(shared, indexer.unit)
    mass = blocks.amax((1, 4)) if indexer.kind == "seer" else blocks.sum((1, 4))
    mass = mass * candidates(indexer, allowed, rows)
    return mass / mass.sum(-1, keepdim=True).clamp(min=1e-30)


class Fitting:
    """Takes the documents of one layer block by block, then fits. `heads` query heads and `kv_heads` of `dim` sizes,
    `hidden` sizes of the states; `shuffled`: each document learns the targets of another, a null."""

    def __init__(
        self,
        kind: str,
        hidden: int,
        heads: int,
        kv_heads: int,
        dim: int,
        sizes: Sizes,
        seed: int = 0,
        shuffled: bool = False,
    ) -> None:
        self.kind, self.kv_heads, self.shuffled, self.seed = kind, kv_heads, shuffled, seed
        self._shape = hidden, heads, kv_heads, dim
        self.sizes = sizes.for_kind(kind, kv_heads)
        cls, draw = INDEXERS[kind], torch.Generator().manual_seed(seed)
        shape = {"hidden": hidden, "heads": heads, "kv_heads": kv_heads, "dim": dim}
        own = {"index_heads": self.sizes.index_heads, "index_dim": self.sizes.index_dim}
        if kind == "low_rank":
            state = {name: torch.zeros(self.sizes.index_dim, hidden) for name in cls.names}
        else:
            state = cls.start(draw, **shape, **own)
        turned = {"seer": self.sizes.index_dim, "moba": 0, "low_rank": 0}.get(kind, self.sizes.index_dim // 4 * 2)
        self.indexer = cls(state, self.sizes.unit, rotated=turned)
        self.documents: list[Document] = []
        self._moments = LowRankMoments()
        self._inputs: Inputs | None = None

    def again(self, seed: int, shuffled: bool = False, **sizes: Any) -> Self:
        """The documents taken so far, to be learned from another start and with other `sizes`; a low-rank form has
        learned by then and takes no other targets."""
        other = type(self)(self.kind, *self._shape, replace(self.sizes, **sizes), seed, shuffled)
        other.documents, other._moments = self.documents, self._moments
        return other

    def begin(self, inputs: Inputs, half: Tensor | None = None) -> None:
        """Take the next document; its blocks of queries follow by `take`, and `end`. `half`: its hidden states in 16
        bits, where others keep them too."""
        tokens, device = len(inputs.hidden), inputs.hidden.device
        self._before, self._inputs, self._blocks = self._inputs, inputs, list[tuple[Tensor, Tensor]]()
        self._half, first = half, self.sizes.min_distance + self.sizes.sinks
        self._wanted = spread_rows(first, tokens, self.sizes.queries).to(device)

    def take(self, rows: Tensor, attention: Tensor) -> None:
        """Queries at places `rows` [n] of the document, with their attention [H, n, T]."""
        assert self._inputs is not None, "a document begins first"
        tokens = len(self._inputs.hidden)
        if self.kind == "low_rank":
            # Shuffled, the document before learns these targets.
            source = self._before if self.shuffled else self._inputs
            if source is not None and len(source.hidden) == tokens:
                self._moments.add(source.hidden, rows, attention, reachable(rows, tokens, self.sizes))
        elif self.kind != "moba":
            some = torch.isin(rows, self._wanted)
            rows, attention = rows[some], attention[:, some].float()
            allowed = reachable(rows, tokens, self.sizes)
            self._blocks.append((rows, target_of(self.indexer, attention, allowed, rows, self.kv_heads).half()))

    def end(self) -> None:
        """Keep what was taken of the document."""
        if self._blocks and self._inputs is not None:
            rows, targets = zip(*self._blocks, strict=True)
            self.documents.append(Document(self._learned(*self._inputs), torch.cat(rows), torch.cat(targets, 1)))

    def _learned(self, hidden: Tensor, _: Tensor | None, queries: Tensor | None, keys: Tensor | None) -> Inputs:
        """In 16 bits what a step reads of the document: its hidden states, or the layer's keys and some queries."""
        if not self.indexer.reads:
            return Inputs(hidden.to(torch.float16) if self._half is None else self._half)
        assert queries is not None, "it reads the layer's own states"
        return Inputs(hidden[:, :0], None, queries[self._wanted], keys).to(torch.float16)

    def fit(self, states: States | None = None, progress: Callable[[Look], None] | None = None) -> FittedIndexer:
        """Train, or solve. Errors: NotFitted for fewer than two documents."""
        if self.kind == "low_rank":
            self.indexer.state = self._moments.solve(self.sizes.index_dim)
        fitted = FittedIndexer(self.indexer, self.sizes, states=states)
        if self.kind in ("low_rank", "moba"):
            return fitted
        if len(self.documents) < 2:
            raise NotFitted("An indexer learns from one document and selects on another: give at least two.")
        documents = self.documents
        if self.shuffled:
            documents = shuffled(documents)
        with alone():
            fitted.curve = self._train(documents, progress)
        return fitted

    def _train(self, documents: list[Document], progress: Callable[[Look], None] | None) -> list[Look]:
        """Leaves the tensors of the best look in the indexer."""
        select = max(1, len(documents) // SELECTS)
        lessons = [self.lesson(document) for document in documents]
        learn, selection = lessons[select:], lessons[:select]
        state = {name: tensor.clone().requires_grad_() for name, tensor in self.indexer.state.items()}
        self.indexer.state = state
        optimiser = torch.optim.AdamW(state.values(), lr=self.sizes.rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, self.sizes.steps)
        draw = torch.Generator().manual_seed(self.seed)
        curve, losses, since = list[Look](), list[float](), 0
        best: State = {}
        for step in range(self.sizes.steps + 1):
            if step % LOOK == 0 or step == self.sizes.steps:
                with torch.no_grad():
                    reached = sum(float(self.loss(lesson)) for lesson in selection) / len(selection)
                since = 0 if not best or reached < min(look.selection for look in curve) else since + 1
                if since == 0:
                    best = {name: tensor.detach().clone() for name, tensor in state.items()}
                curve.append(Look(step, sum(losses) / len(losses) if losses else None, reached))
                losses.clear()
                if progress is not None:
                    progress(curve[-1])
                if since == PATIENCE:
                    break
            if step == self.sizes.steps:
                break
            drawn = torch.randint(len(learn), (BATCH,), generator=draw).tolist()
            with torch.enable_grad():
                loss = torch.stack([self.loss(learn[place]) for place in drawn]).mean()
                optimiser.zero_grad()
                loss.backward()
            torch.nn.utils.clip_grad_norm_(state.values(), 1.0)
            optimiser.step()
            schedule.step()
            losses.append(loss.item())
        self.indexer.state = best
        return curve

    def lesson(self, document: Document) -> Lesson:
        """What every step over a document has in common."""
        inputs, rows, target = document.inputs.to(torch.float32), document.rows, document.target.float()
        tokens = len(inputs.hidden)
        tables = self.indexer.tables(torch.arange(tokens, device=rows.device))
        allowed = candidates(self.indexer, reachable(rows, tokens, self.sizes), rows)
        count = (target.sum(-1) > 0.5).sum().clamp(min=1)
        return Lesson(inputs, rows, tables, target, allowed, torch.xlogy(target, target).sum(), count)

    def loss(self, lesson: Lesson) -> Tensor:
        """Nats of divergence of the scores from where the attention of a document's queries goes, mean over them."""
        inputs, rows, tables = lesson[:3]
        features = self.indexer.features(inputs, ALL if self.indexer.reads else rows)
        scores = self.indexer.scores(features, tables.at(rows), tables, rows)
        share = scores.masked_fill(~lesson.allowed, -1e9).log_softmax(-1)
        return (lesson.entropy - (lesson.target * share).sum()) / lesson.learned


def shuffled(documents: list[Document]) -> list[Document]:
    """Documents with the targets of the next one of as many tokens; those that have no such other are left out.
    Errors: NotFitted where too few have."""
    by_length = defaultdict[int, list[Document]](list)
    for document in documents:
        by_length[len(document.inputs.hidden)].append(document)
    alike = [same for same in by_length.values() if len(same) > 1]
    if not alike:
        raise NotFitted("Shuffled targets need two documents of as many tokens: give longer ones.")
    return [a._replace(target=b.target) for same in alike for a, b in zip(same, same[1:] + same[:1], strict=True)]
