"""Indexers that read hidden states: DSA, QSA and M3 as their classes in transformers compute, and our low-rank one."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import NotFitted
from ..kernels.scoring import at_least_float32
from ..routers.moments import Moments, power
from .base import ALL, Features, Indexer, Inputs, State, Tables, pooled, rms

# Of the second moments, relative to their mean diagonal.
RIDGE = 1e-3


def drawn(draw: torch.Generator, rows: int, columns: int) -> Tensor:
    """A matrix [rows, columns] whose product with unit-scaled states is unit-scaled."""
    return torch.randn(rows, columns, generator=draw) * columns**-0.5


class DSA(Indexer):
    """One selection for a layer: I[t, s] = sum over heads of w[t] ReLU(q[t] . k[s]) / sqrt(D), one key head."""

    kind = "dsa"
    title = "DSA"
    source = "DeepSeek-V3.2: DeepseekV32Indexer of transformers"
    names = ("wq_b.weight", "wk.weight", "k_norm.weight", "k_norm.bias", "weights_proj.weight")
    interleaved: ClassVar[bool] = False

    @classmethod
    def start(cls, draw: torch.Generator, hidden: int, heads: int, kv_heads: int, dim: int, **sizes: int) -> State:
        own, size = sizes["index_heads"], sizes["index_dim"]
        tensors = drawn(draw, own * size, hidden), drawn(draw, size, hidden), torch.ones(size), torch.zeros(size)
        return dict(zip(cls.names, (*tensors, drawn(draw, own, hidden)), strict=True))

    def features(self, inputs: Inputs, rows: Tensor | slice = ALL) -> Features:
        wq, wk, weight, bias, heads = (self.state[name] for name in self.names)
        hidden = inputs.hidden
        source = (hidden if inputs.query_input is None else inputs.query_input)[rows]
        queries = F.linear(source, wq.to(source)).unflatten(-1, (len(heads), len(wk)))
        keys = at_least_float32(F.linear(hidden, wk.to(hidden)))
        keys = F.layer_norm(keys, keys.shape[-1:], weight.to(keys), bias.to(keys), self.eps)
        weights = at_least_float32(F.linear(hidden[rows], heads.to(hidden))) * len(heads) ** -0.5
        return Features(at_least_float32(queries), weights, keys[:, None])

    def scores(self, features: Features, of_queries: Tables, of_keys: Tables, rows: Tensor) -> Tensor:
        assert features.weights is not None
        queries, keys = self._turn(features.queries, of_queries), self._turn(features.keys, of_keys)[:, 0]
        products = F.relu(queries @ keys.mT * keys.shape[-1] ** -0.5)  # [n, h, T]
        return (features.weights[:, None] @ products)[:, 0][None]

    def _turn(self, x: Tensor, tables: Tables) -> Tensor:
        if not self.interleaved:
            return tables.turn(x)
        # Neighbours are pairs: apart first, so that the same rotation turns them.
        sizes = tables.cos.shape[-1]
        pairs = torch.cat([x[..., 0:sizes:2], x[..., 1:sizes:2], x[..., sizes:]], -1)
        return tables.turn(pairs)


class GLM(DSA):
    """DSA whose rotation pairs neighbouring sizes."""

    kind = "glm"
    title = "GLM-MoE-DSA"
    source = "GLM-MoE-DSA: GlmMoeDsaIndexer of transformers"
    interleaved = True


class M3(Indexer):
    """One selection for each key-value group: the maximum of q . k over the past tokens of a block."""

    kind = "m3"
    title = "MiniMax-M3"
    source = "MiniMax-M3: MiniMaxM3VLIndexer of transformers"
    shares = "group"
    names = ("q_proj.weight", "k_proj.weight", "q_norm.weight", "k_norm.weight")

    @classmethod
    def start(cls, draw: torch.Generator, hidden: int, heads: int, kv_heads: int, dim: int, **sizes: int) -> State:
        size = sizes["index_dim"]
        tensors = drawn(draw, kv_heads * size, hidden), drawn(draw, size, hidden), torch.zeros(size), torch.zeros(size)
        return dict(zip(cls.names, tensors, strict=True))

    def features(self, inputs: Inputs, rows: Tensor | slice = ALL) -> Features:
        q, k, of_queries, of_keys = (self.state[name] for name in self.names)
        hidden = inputs.hidden
        queries = F.linear(hidden[rows], q.to(hidden)).unflatten(-1, (-1, len(k)))
        keys = F.linear(hidden, k.to(hidden))[:, None]
        return Features(rms(queries, 1 + of_queries, self.eps), None, rms(keys, 1 + of_keys, self.eps))

    def of_tokens(self, features: Features, of_queries: Tables, of_keys: Tables) -> Tensor:
        """[S, n, T] before the maximum over blocks."""
        return of_queries.turn(features.queries).transpose(0, 1) @ of_keys.turn(features.keys)[:, 0].mT

    def scores(self, features: Features, of_queries: Tables, of_keys: Tables, rows: Tensor) -> Tensor:
        products = self.of_tokens(features, of_queries, of_keys)
        tokens = products.shape[-1]
        future = torch.arange(tokens, device=rows.device) > rows[:, None]
        products = products.masked_fill(future, -torch.inf)
        return F.pad(products, (0, -tokens % self.unit), value=-torch.inf).unflatten(-1, (-1, self.unit)).amax(-1)


class QSA(Indexer):
    """One selection for a layer, of groups of tokens: the sum over heads of ReLU(q . k) / sqrt(D), k the mean of a
    group's keys, normalised after the mean and rotated as its first token."""

    kind = "qsa"
    title = "QSA"
    source = "Qwen4-Exp: Qwen4ExpTextQSAIndexer of transformers"
    waits = True
    names = ("index_qk_proj.weight", "q_layernorm.weight", "k_layernorm.weight")

    @classmethod
    def start(cls, draw: torch.Generator, hidden: int, heads: int, kv_heads: int, dim: int, **sizes: int) -> State:
        own, size = sizes["index_heads"], sizes["index_dim"]
        tensors = drawn(draw, (own + 1) * size, hidden), torch.zeros(size), torch.zeros(size)
        return dict(zip(cls.names, tensors, strict=True))

    def features(self, inputs: Inputs, rows: Tensor | slice = ALL) -> Features:
        both, of_queries, _ = (self.state[name] for name in self.names)
        hidden, size = inputs.hidden, len(of_queries)
        queries = F.linear(hidden[rows], both[:-size].to(hidden)).unflatten(-1, (-1, size))
        keys = F.linear(hidden, both[-size:].to(hidden))[:, None]
        return Features(rms(queries, 1 + of_queries, self.eps), None, at_least_float32(keys))

    def scores(self, features: Features, of_queries: Tables, of_keys: Tables, rows: Tensor) -> Tensor:
        means = pooled(features.keys, self.unit).mean(1)  # [U, 1, D]
        means = rms(means, 1 + self.state["k_layernorm.weight"], self.eps)
        keys = of_keys.at(slice(None, None, self.unit)).turn(means)[:, 0]
        products = F.relu(of_queries.turn(features.queries) @ keys.mT)  # [n, h, U]
        return (products.sum(1) * keys.shape[-1] ** -0.5)[None]


class LowRank(Indexer):
    """One selection for a layer: h[t]' A h[s] with A of rank r, in closed form from second moments; no rotation."""

    kind = "low_rank"
    title = "Low rank (closed form)"
    source = "our control"
    names = ("q.weight", "k.weight")

    def features(self, inputs: Inputs, rows: Tensor | slice = ALL) -> Features:
        hidden = at_least_float32(inputs.hidden)
        q, k = (self.state[name].to(hidden) for name in self.names)
        queries, keys = F.linear(hidden[rows], q), F.linear(hidden, k)
        return Features(queries[:, None], None, keys[:, None])

    def scores(self, features: Features, of_queries: Tables, of_keys: Tables, rows: Tensor) -> Tensor:
        return (features.queries[:, 0] @ features.keys[:, 0].mT)[None]


class LowRankMoments:
    """h[t]' A h[s] of rank r from second moments alone: A comes nearest, in least squares, to how much more attention a
    key gets than its even share, queries and keys taken for independent draws."""

    def __init__(self) -> None:
        # Of places that query, and of the others; both are keys.
        self.of_queries, self.others = Moments(), Moments()
        self.cross: Tensor | float = 0.0

    def add(self, hidden: Tensor, rows: Tensor, attention: Tensor, allowed: Tensor) -> None:
        """Queries at places `rows` [n] of a document [T, d], with attention [H, n, T] on the keys that count."""
        weights = attention.sum(0) * allowed
        some = weights.sum(-1) > 0
        weights, allowed, queries = weights[some], allowed[some].to(weights), hidden[rows[some]]
        even = allowed / allowed.sum(-1, keepdim=True)
        excess = weights / weights.sum(-1, keepdim=True) - even
        self.of_queries.add(queries)
        # The blocks of a document together are all its places: every key once.
        self.others.add(hidden[rows[~some]])
        self.cross = self.cross + queries.double().mT @ (excess @ hidden).double()

    def solve(self, rank: int) -> State:
        """The matrices [r, d] whose product is A. Errors: NotFitted before any document."""
        if not self.of_queries.count:
            raise NotFitted("A low-rank indexer needs at least one document with queries.")
        of_keys = Moments()
        of_keys.sum, of_keys.count = (self.of_queries.sum + self.others.sum, self.of_queries.count + self.others.count)
        whitened = []
        for moments in (self.of_queries, of_keys):
            mean = moments.mean()
            ridge = RIDGE * mean.diagonal().mean() * torch.eye(len(mean), dtype=mean.dtype, device=mean.device)
            whitened.append(power(mean + ridge, -0.5))
        middle = whitened[0] @ torch.as_tensor(self.cross) / self.of_queries.count @ whitened[1]
        left, sizes, right = torch.linalg.svd(middle)
        roots = sizes[:rank].sqrt()
        tensors = (left[:, :rank] * roots).mT @ whitened[0], (right[:rank] * roots[:, None]) @ whitened[1]
        return dict(zip(("q.weight", "k.weight"), (x.float() for x in tensors), strict=True))
