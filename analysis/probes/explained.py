"""Which writers explain what a head reads, over many pairs of a text, and whether it reads otherwise without them."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from ..errors import BadSetting
from ..metrics.intervals import Interval, interval, ratio_interval
from ..seam.attention import apply
from ..seam.calls import Prompt
from ..statistics.inputs import check_head
from ..statistics.states import States, attention_states
from .ablation import Heads, Without, replaced
from .writers import BIAS, ROUNDING, Reached, Stream, Values

if TYPE_CHECKING:
    from ..models import Model

QUERY, KEY = "query", "key"
# Earlier tokens beside each key, whose mean score its own is held against.
OTHERS = 6
# Of a text: at most so many pairs, of which the weight is at least so large.
PAIRS, LEAST = 40, 0.1
# Queries at once.
ROWS = 256


@dataclass(frozen=True)
class Explained:
    """`pairs` int [N, 2]: queries and the keys that the head reads most from them. What each writer gives to the
    `margin` [N], the score of the key less the mean score of other tokens that the query could read.

    `writers`: side (whose stream), writer, margin with low and high over the pairs, share of the whole margin.
    `together` [W, W]: mean margin by the writer of the query's stream and of the key's, in the order of `names`.
    """

    pairs: np.ndarray
    margin: np.ndarray
    writers: pd.DataFrame
    names: list[str]
    together: np.ndarray


def strongest_pairs(states: States, head: int, most: int = PAIRS) -> np.ndarray:
    """int [N, 2]: the queries of a text that give one token most, and that token, the text's first left out; in the
    order of the text. None where no token gets LEAST from any query."""
    weight, key = np.zeros((2, states.length))
    for start in range(0, states.length, ROWS):
        stop = min(start + ROWS, states.length)
        shares = states.scores(head, start, stop).softmax(-1).nan_to_num(0.0)
        shares[:, 0] = 0
        best = shares.max(-1)
        weight[start:stop], key[start:stop] = best.values.cpu(), best.indices.cpu()
    queries = np.sort(np.argsort(-weight, kind="stable")[:most])
    queries = queries[(weight[queries] >= LEAST) & (queries > OTHERS)]
    return np.stack([queries, key[queries].astype(int)], 1)


class Explaining:
    """A head's pairs [N, 2] in a text of tokens [T], its writers at both, and what follows when one is removed."""

    def __init__(
        self, model: "Model", ids: np.ndarray, layer: int, head: int, pairs: np.ndarray, seed: int = 0
    ) -> None:
        self.model, self.head, self.pairs = model, head, pairs
        self.ids = torch.as_tensor(ids).long()
        self.place = check_head(model, layer, head)
        draw = np.random.default_rng(seed)
        window = attention_states(model, ids, [self.place])[self.place].window or len(ids)
        self.others = np.stack([_drawn(draw, query, key, window) for query, key in pairs])  # [N, OTHERS]
        places = np.unique(np.concatenate([pairs.ravel(), self.others.ravel()]))
        self.query, self.key, self.other = (
            torch.from_numpy(np.searchsorted(places, some)) for some in (pairs[:, 0], pairs[:, 1], self.others)
        )
        self.stream = Stream(model.lm, self.ids, self.place, places.tolist())
        self.written = self.stream.written(head)
        self.norms = self.stream.frozen()
        self.logits = self._logits(self.written.model_queries, self.written.model_keys)

    def explained(self) -> Explained:
        """The margin of every pair by its writers."""
        written = self.written
        queries = written.queries[:, self.query] * written.factor  # [W, N, D]
        ahead = written.keys[:, self.key] - written.keys[:, self.other].mean(2)
        by_query = torch.einsum("wnd,nd->nw", queries, ahead.sum(0)).numpy()
        by_key = torch.einsum("nd,wnd->nw", queries.sum(0), ahead).numpy()
        margin = by_key.sum(1)
        rows = []
        for side, values in ((QUERY, by_query), (KEY, by_key)):
            for writer, of_pairs in zip(written.writers, values.T, strict=True):
                spread = interval(of_pairs)
                row = {"side": side, "writer": writer, "margin": spread.mean, "low": spread.low, "high": spread.high}
                rows.append(row | {"share": float(of_pairs.sum() / margin.sum())})
        together = torch.einsum("vnd,wnd->vw", queries, ahead).numpy() / len(self.pairs)
        return Explained(self.pairs, margin, pd.DataFrame(rows), written.writers, together)

    @torch.no_grad()
    def removed(self, side: str, writer: str, by: str) -> "Removed":
        """What follows once a writer's output is `by` zero or its mean over the text in the stream of one side."""
        values, norms = self._without(writer, by), self.norms.again()
        vectors = [self._vectors(side, self.stream.run(values, each)) for each in (norms, None)]
        followed = self._followed(writer, by)
        vectors += [] if followed is None else [self._vectors(side, followed, self.stream.places)]
        queries, keys = self.written.model_queries, self.written.model_keys
        logits = [self._logits(each, keys) if side == QUERY else self._logits(queries, each) for each in vectors]
        predicted, measured, *rest = ((of_side - self.logits).numpy() for of_side in logits)
        of_writers = self.written.queries if side == QUERY else self.written.keys
        bias = of_writers[self.written.writers.index(BIAS)]
        (left, anew), at = (each - bias for each in vectors[:2]), self.query if side == QUERY else self.key
        rescaled = (left * anew).sum(-1) / (left * left).sum(-1)
        return Removed(predicted, measured, rescaled[at].numpy(), rest[0] if rest else None)

    def _followed(self, writer: str, by: str) -> Prompt | None:
        """What the layer is given of the whole text where the model runs without a writer; None for one that is no head
        and no block."""
        keys = dict(self.stream.places_of(writer))
        heads = [(place, head) for place, head in keys.items() if head is not None]
        modules = [key for key in keys if isinstance(key, nn.Module)]
        if not heads and not modules:
            return None
        try:
            with ExitStack() as hooks:
                for module in modules:
                    hooks.enter_context(module.register_forward_hook(lambda _, args, out: _replaced(out, by)))
                hooks.enter_context(apply(self.model.lm, _Until(self.place, heads, by)))
                self.model.lm.base_model(self.ids.to(self.model.lm.device)[None], use_cache=False)
        except Reached as reached:
            return reached.prompt
        raise AssertionError("the layer was reached when the text was read")

    def _vectors(self, side: str, prompt: Prompt, places: Tensor | slice = slice(None)) -> Tensor:
        """The head's queries or keys [P, D]."""
        group = self.head * prompt.key.shape[1] // prompt.query.shape[1]
        of_side = prompt.query[0, self.head] if side == QUERY else prompt.key[0, group]
        return of_side[places].double().cpu()

    def _logits(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Of every pair, from queries and keys at all places [P, D]."""
        return self.written.factor * (queries[self.query] * keys[self.key]).sum(-1)

    def _without(self, writer: str, by: str) -> Values:
        """What the writers give, one of them replaced. Errors: BadSetting for one that cannot be removed."""
        values, replaced = dict(self.stream.values), False
        for key, head in self.stream.places_of(writer):
            now, mean = values[key], self.stream.means[key]
            instead = torch.zeros_like(now) if by == "zero" else mean
            if head is not None:
                of_head = torch.arange(now.shape[2], device=now.device) == head
                instead = torch.where(of_head[:, None], instead, now)
            values[key], replaced = instead, True
        if not replaced:
            raise BadSetting(f"{writer} is no writer that can be removed: choose a head, a block or the embedding.")
        return values


@dataclass(frozen=True)
class Removed:
    """Changes of every pair's logit [N] without a writer. `predicted`: all else as it was, norms too, as in
    `explained`; `measured`: the layers run anew, norms and all, the other writers as they were, so that what is left of
    the query or key is multiplied by `rescaled`; `followed`: the model run without it, so that later writers follow
    too (None for the embedding, without which there is no text)."""

    predicted: np.ndarray
    measured: np.ndarray
    rescaled: np.ndarray
    followed: np.ndarray | None


@dataclass(frozen=True)
class Removal:
    """A writer removed from the stream of one `side` of many pairs, means of `Removed`: `slope` of the measured on the
    predicted change, through nought, with its interval over the pairs, and `followed` that of the model run anew."""

    side: str
    writer: str
    by: str
    predicted: float
    measured: float
    rescaled: float
    slope: float | None
    low: float | None
    high: float | None
    followed: float | None
    followed_low: float | None
    followed_high: float | None
    pairs: int


def removals(explaining: Explaining, explained: Explained, writers: int, by: str) -> Iterator[Removal]:
    """The `writers` with the largest margins removed, the largest first."""
    rows = explained.writers[~explained.writers["writer"].isin([BIAS, ROUNDING])]
    order = rows["margin"].abs().sort_values(ascending=False, kind="stable").index[:writers]
    for row in rows.loc[order].itertuples():
        removed = explaining.removed(row.side, row.writer, by)
        predicted = removed.predicted
        spread, nothing = ratio_interval(predicted * removed.measured, predicted**2), Interval(None, None, None, 0)
        followed = removed.followed
        further = nothing if followed is None else ratio_interval(predicted * followed, predicted**2)
        yield Removal(
            side=row.side,
            writer=row.writer,
            by=by,
            predicted=float(predicted.mean()),
            measured=float(removed.measured.mean()),
            rescaled=float(removed.rescaled.mean()),
            slope=spread.mean,
            low=spread.low,
            high=spread.high,
            followed=further.mean,
            followed_low=further.low,
            followed_high=further.high,
            pairs=spread.units,
        )


class _Until(Without):
    """A pass without heads, which ends at the layer `last`."""

    def __init__(self, last: int, heads: Heads, by: str) -> None:
        super().__init__(heads, by)
        self.last = last

    def prefill(self, prompt: Prompt) -> None:
        """The end of the way."""
        if prompt.layer == self.last:
            raise Reached(prompt)


def _replaced(out: Any, by: str) -> Any:
    """What a block gives [1, T, d], or that with what stands behind it, replaced."""
    return (replaced(out[0], by), *out[1:]) if isinstance(out, tuple) else replaced(out, by)


def _drawn(draw: np.random.Generator, query: int, key: int, window: int) -> np.ndarray:
    """Other tokens that a query may read, the first of the text left out where there are enough."""
    first = max(1, query - window + 1)
    free = np.setdiff1d(np.arange(first, query + 1), [key])
    return draw.choice(free, OTHERS, replace=len(free) < OTHERS)
