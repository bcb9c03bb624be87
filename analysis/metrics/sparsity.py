"""How much was read: counted from the masks that were used, block by block; nothing of size T x T is kept."""

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

import torch

from ..errors import BadSetting
from ..seam.attention import Block


@dataclass(frozen=True)
class Reads:
    """Keys that were read, over all layers and queries (definitions 2.14 and 5.9).

    Per query head: `attended` keys in the softmax of a query, on average; `reads_causal` as a share of the causal pairs
    (a query and the tokens before it, itself included), `reads_full` of all pairs. Per key-value head, which is what
    memory sees: a key counts once when any query head that shares it reads it. `attended_kv` and `reads_kv` are
    `attended` and `reads_causal` counted so; `kv_read` the key and value vectors fetched, halved, as a share of the
    causal pairs.
    """

    attended: float
    reads_causal: float
    reads_full: float
    attended_kv: float
    reads_kv: float
    kv_read: float

    @property
    def sharing(self) -> float:
        """How many times more keys the heads that share them read together than one of them: 1 where all agree."""
        return self.attended_kv / self.attended


class ReadCounter:
    """Counts what the queries of texts of `length` tokens read, without padding: `apply(..., watch=counter)`."""

    def __init__(self, length: int) -> None:
        self.length = length
        # Of every query head.
        self.attended = self.causal = self.queries = 0
        # Of every key-value head.
        self.shared = self.visible = self.causal_kv = self.queries_kv = 0

    def __call__(self, block: Block, probabilities: torch.Tensor) -> None:
        """Adds one block of queries of one layer."""
        assert block.read is not None, "the seam has decided what is read before a watcher sees a block"
        batch, heads, queries, _ = probabilities.shape
        kv_heads = heads // block.sharing
        causal = int((block.rows + 1).sum()) * batch
        self.attended += _pairs(block.read, batch, heads)
        self.causal += causal * heads
        self.queries += queries * batch * heads
        self.shared += _pairs(union(block.read, block.sharing), batch, kv_heads)
        self.visible += _pairs(union(block.visible, block.sharing), batch, kv_heads)
        self.causal_kv += causal * kv_heads
        self.queries_kv += queries * batch * kv_heads

    def reads(self, method: Any) -> Reads:
        """What `method` read in all texts so far. Errors: BadSetting when nothing was seen."""
        if not self.queries:
            raise BadSetting("No attention passed this counter, so nothing can be said of its reads.")
        fetched = method.fetched(self.shared, self.visible) + method.extra_vectors * self.queries_kv
        return Reads(
            attended=self.attended / self.queries,
            reads_causal=self.attended / self.causal,
            reads_full=self.attended / (self.queries * self.length),
            attended_kv=self.shared / self.queries_kv,
            reads_kv=self.shared / self.causal_kv,
            kv_read=fetched / self.causal_kv,
        )


def union(mask: torch.Tensor, sharing: int) -> torch.Tensor:
    """Of masks [B, H, n, Tk], what any of `sharing` neighbouring heads has: [B, H / sharing, n, Tk]; a mask that all
    heads share stays."""
    if sharing == 1 or mask.shape[1] == 1:
        return mask
    # Many times faster than `any` of the heads.
    return reduce(or_, mask.unflatten(1, (-1, sharing)).unbind(2))


def _pairs(mask: torch.Tensor, batch: int, heads: int) -> int:
    """True pairs of a mask [B or 1, H or 1, n, Tk], for every text and head."""
    return int(torch.count_nonzero(mask)) * (batch // mask.shape[0]) * (heads // mask.shape[1])
