"""How much was read: counted from the masks that were used, block by block; nothing of size T x T is kept."""

from dataclasses import dataclass

import torch

from analysis.attention import Block
from analysis.errors import BadSetting


@dataclass(frozen=True)
class Reads:
    """Keys that were read, over all layers, query heads and queries (definitions 2.14).

    `attended` keys in the softmax of a query, on average; `reads_causal` as a share of the causal pairs (a query and
    the tokens before it, itself included), `reads_full` of all pairs; `kv_read` key and value vectors fetched from
    memory, halved, as a share of the causal pairs. Query heads that share keys are counted each for itself.
    """

    attended: float
    reads_causal: float
    reads_full: float
    kv_read: float


class ReadCounter:
    """Counts what the queries of texts of `length` tokens read, without padding: `apply(..., watch=counter)`."""

    def __init__(self, length: int):
        self.length = length
        self.attended = self.visible = self.causal = self.queries = 0

    def __call__(self, block: Block, probabilities: torch.Tensor) -> None:
        """Adds one block of queries of one layer."""
        batch, heads, queries, _ = probabilities.shape
        self.attended += _pairs(block.read, batch, heads)
        self.visible += _pairs(block.visible, batch, heads)
        self.causal += int((block.rows + 1).sum()) * batch * heads
        self.queries += queries * batch * heads

    def reads(self, method) -> Reads:
        """What `method` read in all texts so far. Errors: BadSetting when nothing was seen."""
        if not self.queries:
            raise BadSetting("No attention passed this counter, so nothing can be said of its reads.")
        return Reads(
            self.attended / self.queries,
            self.attended / self.causal,
            self.attended / (self.queries * self.length),
            (method.fetched(self.attended, self.visible) + method.extra_vectors * self.queries) / self.causal,
        )


def _pairs(mask: torch.Tensor, batch: int, heads: int) -> int:
    """True pairs of a mask [B or 1, H or 1, n, Tk], for every text and head."""
    return int(torch.count_nonzero(mask)) * (batch // mask.shape[0]) * (heads // mask.shape[1])
