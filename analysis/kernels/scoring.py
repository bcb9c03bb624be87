"""How a layer makes scores of queries and keys: the one place of the factor and the soft cap before its softmax."""

from dataclasses import dataclass

import torch
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """float32, or float64 where it comes so. Half-precision is too coarse to rank keys by: bfloat16 scores about 60
    are a quarter apart."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


@dataclass(frozen=True)
class Scoring:
    """What a layer multiplies the product of query and key by, and the soft cap of the result, or None.

    Each model has its own: Granite a multiplier, Gemma a scalar and a cap, OPT 1, because its queries are scaled
    before. So nothing that looks at scores may take 1/sqrt(D) for granted.
    """

    factor: float
    softcap: float | None = None

    @classmethod
    def plain(cls, x: Tensor) -> "Scoring":
        """1/sqrt(D) of queries or keys [..., D], without a cap: where states come without their layer."""
        return cls(x.shape[-1] ** -0.5)

    def scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        """The scores [B, H, n, T] of queries [B, H, n, D] and keys [B, G, T, D], G a divisor of H."""
        grouped = queries.unflatten(1, (keys.shape[1], -1))  # [B, G, H / G, n, D]
        return self.of((grouped @ keys[:, :, None].mT).flatten(1, 2))

    def of(self, products: Tensor) -> Tensor:
        """The scores of products of queries and keys, or of a mean of such products."""
        return self.capped(products * self.factor)

    def capped(self, scores: Tensor) -> Tensor:
        """Scaled products under the soft cap."""
        return scores if self.softcap is None else torch.tanh(scores / self.softcap) * self.softcap


def softmax(scores: Tensor, sink_logits: Tensor | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """Shares of the keys, of scores [B, H, n, T]. A learned sink of a head, `sink_logits` [H] in the unit of the
    scores, is one more term of every sum and belongs to no token: what it takes is missing from the row."""
    if sink_logits is None:
        return torch.softmax(scores, -1, dtype=dtype)
    column = sink_logits.to(scores)[:, None, None].expand(*scores.shape[:-1], 1)
    return torch.softmax(torch.cat([scores, column], -1), -1, dtype=dtype)[..., :-1]
