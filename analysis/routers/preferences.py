"""Which distances a head prefers before it has seen a text: its mean query by rotary frequency, and the score that
TriAttention gives a key by it.

Before their rotation the queries of many heads point nearly one way. Turned to a later position, their mean says what a
key at any distance will be given, without a query.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..errors import BadSetting
from ..seam.attention import apply
from ..seam.calls import CosSin
from ..seam.hooks import Hooks
from ..statistics.inputs import forward
from .frequencies import Frequencies, frequencies
from .rotation import unrotate

if TYPE_CHECKING:
    from ..models import Model

# How far ahead a key's later readers stand: 1, 2, 4 ... 65,536 tokens.
OFFSETS = tuple(1 << power for power in range(17))


def triattention_scores(
    query_mean: Tensor,
    query_abs: Tensor,
    keys: Tensor,
    positions: Tensor,
    now: int,
    inv_freq: Tensor,
    offsets: Iterable[int] | None = None,
    scale: float = 1.0,
) -> Tensor:
    """What each query head is expected to give each key, float64 [H, L], larger means keep (TriAttention).

    `query_mean` complex [H, D/2] is E[q_f] and `query_abs` [H, D/2] E|q_f|, of queries before their rotation; `keys`
    [G, L, D] before theirs, whose pairs are sizes f and f + D/2, at `positions` [L]. `now` is the position of the next
    token, `inv_freq` [D/2] the radians of a step, `scale` what the rotary tables multiply queries and keys by. The mean
    over `offsets` o (1, 2, 4 ... 65,536 unless given) of

        scale^2 [sum_f |E q_f| |k_f| cos((now - s + o) w_f + arg(E q_f conj k_f)) + sum_f (E|q_f| - |E q_f|) |k_f|]

    with the phases in float64. Errors: BadSetting for shapes that do not belong together, or no offsets.
    """
    half, (kv_heads, length) = keys.shape[-1] // 2, keys.shape[:2]
    fits = query_mean.shape == query_abs.shape and query_mean.shape[1:] == inv_freq.shape == (half,)
    if not fits or positions.shape != (length,) or query_mean.shape[0] % kv_heads:
        raise BadSetting(
            f"Queries {list(query_mean.shape)} and {list(query_abs.shape)}, keys {list(keys.shape)}, positions "
            f"{list(positions.shape)} and frequencies {list(inv_freq.shape)} do not belong together: twice [H, D/2], "
            "[G, L, D] with G a divisor of H, [L] and [D/2] are needed."
        )
    rates = inv_freq.double()
    angles = positions.double()[:, None] * rates
    turned = torch.complex(keys[..., :half].double(), keys[..., half:].double()) * torch.polar(
        torch.ones_like(angles), angles
    )
    return scale**2 * expected_logits(query_mean, query_abs, turned, now, rates, offsets)


def expected_logits(
    query_mean: Tensor, query_abs: Tensor, keys: Tensor, now: int, rates: Tensor, offsets: Iterable[int] | None = None
) -> Tensor:
    """The same of keys complex [G, L, D/2] that are turned already, which need no position: float64 [H, L]."""
    steps = OFFSETS if offsets is None else tuple(offsets)
    if not steps:
        raise BadSetting("TriAttention looks ahead of the next token: give at least one offset.")
    ones = torch.ones_like(rates)
    ahead = torch.stack([torch.polar(ones, (now + step) * rates) for step in steps]).mean(0)
    mean = (query_mean.to(torch.complex128) * ahead).unflatten(0, (len(keys), -1))  # [G, H / G, D/2]
    spread = (query_abs.double() - query_mean.abs().double()).unflatten(0, (len(keys), -1))
    scores = mean.real @ keys.real.mT + mean.imag @ keys.imag.mT + spread @ keys.abs().mT
    return scores.flatten(0, 1)


@dataclass
class QueryStatistics:
    """Queries after their norm and before their rotation, by rotary frequency: of every layer its `frequencies`, E[q_f]
    complex128 [H, D/2] in `mean`, E|q_f| float64 [H, D/2] in `size` and E[k_f] complex128 [G, D/2] in `key`."""

    frequencies: list[Frequencies]
    mean: list[Tensor]
    size: list[Tensor]
    key: list[Tensor]

    def concentration(self) -> np.ndarray:
        """R = |E q| / E|q| of every head, float64 [L, H], 0 to 1: the sum over frequencies of the one by that of the
        other. At 1 all queries point one way, and the distance alone decides."""
        rows = [
            mean.abs().sum(-1) / size.sum(-1).clamp(min=1e-300) for mean, size in zip(self.mean, self.size, strict=True)
        ]
        return torch.stack(rows).numpy()

    def preference(self, layer: int, head: int, distances: np.ndarray) -> np.ndarray:
        """What a head's mean query gives its mean key at each distance, before scaling, float64 like `distances`: the
        sum over f of |E q_f| |E k_f| cos(distance w_f + arg(E q_f conj E k_f)), times the square of the factor."""
        about, mean = self.frequencies[layer], self.mean[layer][head]
        key = self.key[layer][head * len(self.key[layer]) // len(self.mean[layer])]
        angles = torch.tensor(distances.tolist(), dtype=torch.float64)[:, None] * about.rates
        turning = torch.polar(torch.ones_like(angles), angles) * (mean * key.conj())
        return (turning.real.sum(-1) * about.factor**2).numpy()


class _Summing(Hooks):
    """Stands for a method in `apply`: adds up queries and keys as they were before their rotation."""

    dense = True

    def __init__(self, lm: Any) -> None:
        self.lm = lm
        self.counts: dict[int, int] = {}
        self.frequencies: dict[int, Frequencies] = {}
        self.sums: dict[int, list[Tensor]] = {}

    def encode_tokens(self, layer: int, query: Tensor, key: Tensor, past: int, module: Any, tables: CosSin) -> None:
        """Add those of one window."""
        if layer not in self.frequencies:
            self.frequencies[layer] = frequencies(self.lm, module, tables, query.shape[-1])
        about = self.frequencies[layer]
        queries, keys = (about.pairs(unrotate(x[:1].detach().float(), module, tables)[0]).cpu() for x in (query, key))
        parts = [queries.sum(1), queries.abs().sum(1), keys.sum(1)]
        self.counts[layer] = self.counts.get(layer, 0) + query.shape[2]
        before = self.sums.get(layer)
        self.sums[layer] = parts if before is None else [a + b for a, b in zip(before, parts, strict=True)]


@torch.no_grad()
def query_statistics(
    model: "Model", windows: Sequence[np.ndarray], progress: Callable[[float], None] | None = None
) -> QueryStatistics:
    """The statistics of the queries of windows of tokens [T], streamed: nothing of a window stays but its sums.

    `progress(fraction)` is called before each. Errors: BadModel for a model without rotary positions.
    """
    summing = _Summing(model.lm)
    for place, ids in enumerate(windows):
        if progress:
            progress(place / len(windows))
        with apply(model, summing):
            forward(model, ids)
    layers = sorted(summing.sums)
    mean, size, key = zip(*([x / summing.counts[layer] for x in summing.sums[layer]] for layer in layers), strict=True)
    return QueryStatistics([summing.frequencies[layer] for layer in layers], list(mean), list(size), list(key))
