"""Indexers that read the layer's own queries and keys, block by block: SeerAttention-R and MoBA."""

import torch
from torch import Tensor

from ..errors import BadSetting
from .base import ALL, Features, Indexer, Inputs, State, Tables, pooled, rms


def states_of(inputs: Inputs, kind: str) -> tuple[Tensor, Tensor]:
    """The layer's queries [T, H, D] and keys [T, G, D]. Errors: BadSetting where they were not given."""
    if inputs.queries is None or inputs.keys is None:
        raise BadSetting(f"{kind} looks at the layer's own queries and keys: give `states`, which makes them.")
    return inputs.queries, inputs.keys


class Seer(Indexer):
    """One selection for each key-value head: a gate of the summed projections of its query heads against maximum,
    minimum and mean of a block's keys, projected, both before their rotation; a block is rotated as its first token."""

    kind = "seer"
    title = "SeerAttention-R"
    source = "SeerAttention-R (Gao et al., 2025), AttnGate"
    shares = "group"
    reads = "plain"
    waits = True
    names = ("attngate_linear_q.weight", "attngate_linear_k.weight", "attngate_qnorm.weight", "attngate_knorm.weight")

    @classmethod
    def start(cls, draw: torch.Generator, hidden: int, heads: int, kv_heads: int, dim: int, **sizes: int) -> State:
        size, group = sizes["index_dim"], heads // kv_heads
        q = torch.randn(kv_heads, group, dim, size, generator=draw) * (group * dim) ** -0.5
        k = torch.randn(kv_heads, 3 * dim, size, generator=draw) * (3 * dim) ** -0.5
        return dict(zip(cls.names, (q, k, torch.ones(size), torch.ones(size)), strict=True))

    def features(self, inputs: Inputs, rows: Tensor | slice = ALL) -> Features:
        queries, keys = states_of(inputs, self.kind)
        weight = self.state["attngate_linear_q.weight"].to(queries)
        grouped = queries[rows].unflatten(1, weight.shape[:2])  # [T, G, H / G, D]
        gate = torch.einsum("tghd,ghde->tge", grouped, weight)
        return Features(rms(gate, self.state["attngate_qnorm.weight"], self.eps), None, keys)

    def scores(self, features: Features, of_queries: Tables, of_keys: Tables, rows: Tensor) -> Tensor:
        blocks = pooled(features.keys, self.unit)  # [U, unit, G, D]
        both = torch.cat([blocks.amax(1), blocks.amin(1), blocks.mean(1)], -1)
        keys = torch.einsum("ugc,gce->uge", both, self.state["attngate_linear_k.weight"].to(both))
        keys = of_keys.at(slice(None, None, self.unit)).turn(rms(keys, self.state["attngate_knorm.weight"], self.eps))
        queries = of_queries.turn(features.queries).transpose(0, 1)  # [G, n, E]
        return queries @ keys.transpose(0, 1).mT * keys.shape[-1] ** -0.5


class MoBA(Indexer):
    """One selection for each head: its query against the mean of a block's rotated keys. Nothing is fitted."""

    kind = "moba"
    title = "MoBA"
    source = "MoBA (Lu et al., 2025)"
    shares = "head"
    reads = "rotated"
    waits = True

    @classmethod
    def start(cls, draw: torch.Generator, hidden: int, heads: int, kv_heads: int, dim: int, **sizes: int) -> State:
        return {}

    def features(self, inputs: Inputs, rows: Tensor | slice = ALL) -> Features:
        queries, keys = states_of(inputs, self.kind)
        return Features(queries[rows], None, keys)

    def scores(self, features: Features, of_queries: Tables, of_keys: Tables, rows: Tensor) -> Tensor:
        means = pooled(features.keys, self.unit).mean(1).transpose(0, 1)  # [G, U, D]
        queries = features.queries.transpose(0, 1).unflatten(0, (len(means), -1))  # [G, H / G, n, D]
        return (queries @ means[:, None].mT).flatten(0, 1)
