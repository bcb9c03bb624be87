"""What an indexer is: small queries and keys of its own, whose scores say which past tokens a layer is to read."""

from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ..errors import BadSetting
from ..kernels.scoring import at_least_float32

State = dict[str, Tensor]
ALL = slice(None)


class Inputs(NamedTuple):
    """What an indexer may look at: `hidden` [T, d] entering the layer; `query_input` [T, r] where its queries are made
    of something else; the layer's own `queries` [T, H, D] and `keys` [T, G, D], as `Indexer.reads` says."""

    hidden: Tensor
    query_input: Tensor | None = None
    queries: Tensor | None = None
    keys: Tensor | None = None

    def to(self, dtype: torch.dtype) -> "Inputs":
        """The same numbers in another type."""
        others = (None if x is None else x.to(dtype) for x in self[1:])
        return Inputs(self.hidden.to(dtype), *others)


class Features(NamedTuple):
    """Of each token, before any rotation: `queries` [T, h, D], `weights` [T, h] of the heads or None, `keys` [T, g, D]:
    what a cache holds of it."""

    queries: Tensor
    weights: Tensor | None
    keys: Tensor

    def between(self, queries: Tensor | slice, keys: Tensor | slice) -> "Features":
        """Those of some tokens as queries, and of some as keys."""
        weights = None if self.weights is None else self.weights[queries]
        return Features(self.queries[queries], weights, self.keys[keys])


class Tables(NamedTuple):
    """Rotary tables [T, R] of the first R sizes; R = 0 rotates nothing."""

    cos: Tensor
    sin: Tensor

    @classmethod
    def of(cls, positions: Tensor, sizes: int, theta: float) -> "Tables":
        """Those of positions [T], each angle twice, as transformers has them."""
        frequencies = theta ** (-torch.arange(0, sizes, 2, device=positions.device) / max(1, sizes))
        angles = torch.outer(positions.float(), frequencies).repeat(1, 2)
        return cls(angles.cos(), angles.sin())

    def at(self, rows: Tensor | slice) -> "Tables":
        """Those of some positions."""
        return Tables(self.cos[rows], self.sin[rows])

    def turn(self, x: Tensor) -> Tensor:
        """x [T, heads, D] with its first R sizes rotated, pairs half of R apart."""
        cos, sin = self.cos[:, None].to(x), self.sin[:, None].to(x)
        first, rest = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
        low, high = first.chunk(2, -1)
        return torch.cat([first * cos + torch.cat([-high, low], -1) * sin, rest], -1)


class Indexer:
    """Scores of past tokens, or of blocks of `unit` of them, for each query.

    `shares`: who reads by one selection, a layer, a key-value group or a head. `reads`: which of the layer's own
    queries and keys it looks at, `plain` ones before their rotation or `rotated` ones; "" where hidden states do.
    `waits`: a block has no score before its last token is there; the own block is read meanwhile. `rotated` sizes
    turn by place with base `theta`, where no tables are given.
    """

    kind: ClassVar[str] = ""
    title: ClassVar[str] = ""
    source: ClassVar[str] = ""
    shares: ClassVar[str] = "layer"
    reads: ClassVar[str] = ""
    waits: ClassVar[bool] = False
    names: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self, state: State, unit: int = 1, eps: float = 1e-6, rotated: int = 0, theta: float = 10_000.0
    ) -> None:
        if missing := sorted(set(self.names) - set(state)):
            raise BadSetting(
                f"An indexer {self.kind} has {', '.join(self.names)}, and {', '.join(missing)} is missing."
            )
        self.state, self.unit, self.eps, self.rotated, self.theta = state, unit, eps, rotated, theta

    def tables(self, positions: Tensor) -> Tables:
        """Its own rotary tables of positions [T]."""
        return Tables.of(positions, self.rotated, self.theta)

    @classmethod
    def start(cls, draw: torch.Generator, hidden: int, heads: int, kv_heads: int, dim: int, **sizes: int) -> State:
        """Tensors to train from, by the names of its class: `hidden` sizes of the layer's states, `heads` query heads
        and `kv_heads` of `dim` sizes; `sizes`: `index_heads`, `index_dim`."""
        raise NotImplementedError

    def features(self, inputs: Inputs, rows: Tensor | slice = ALL) -> Features:
        """What is made of each token; queries of those at places `rows` alone."""
        raise NotImplementedError

    def scores(self, features: Features, of_queries: Tables, of_keys: Tables, rows: Tensor) -> Tensor:
        """[S, n, U], larger is read first, of queries at places `rows` [n] and all U units of the keys; S selections.
        What lies in the future is scored like the rest: see `unseen`."""
        raise NotImplementedError

    def unseen(self, rows: Tensor, tokens: int) -> Tensor:
        """bool [n, U]: the units that have no score yet for queries at places `rows` [n]."""
        first = torch.arange(self.units(tokens), device=rows.device) * self.unit
        return (first + (self.unit - 1 if self.waits else 0)) > rows[:, None]

    def units(self, tokens: int) -> int:
        """How many units so many tokens have, the last of which may be short."""
        return -(-tokens // self.unit)


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [..., D] over the root of its mean square, times `weight` [D]."""
    x = at_least_float32(x)
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight.to(x)


def pooled(x: Tensor, unit: int) -> Tensor:
    """x [T, ...] in units of so many tokens, [U, unit, ...]; the last one filled up with its own last token."""
    short = -len(x) % unit
    return torch.cat([x, x[-1:].expand(short, *x.shape[1:])]).unflatten(0, (-1, unit))


def whole_scores(indexer: Indexer, inputs: Inputs, tables: Tables) -> Tensor:
    """Scores of all queries over the whole units of a text, -inf in the future; without the axis of selections where a
    layer has one."""
    tokens = len(inputs.hidden)
    rows = torch.arange(tokens, device=inputs.hidden.device)
    features = indexer.features(inputs)
    scores = indexer.scores(features, tables, tables, rows).masked_fill(indexer.unseen(rows, tokens), -torch.inf)
    if indexer.waits:
        scores = scores[..., : tokens // indexer.unit]
    return scores[0] if indexer.shares == "layer" else scores
