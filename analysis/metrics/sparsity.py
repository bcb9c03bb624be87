"""How much was read: counted from the masks that were used, block by block; nothing of size T x T is kept."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from analysis.attention import Block
from analysis.errors import BadSetting


@dataclass(frozen=True)
class Reads:
    """Keys in the softmax, mean over layers, heads and queries, and as shares of what could be read.

    `attended` keys per query; `reads_causal` of the causal pairs (a query and the tokens before it, itself included),
    `reads_full` of all pairs; `kv_read` key and value vectors fetched, as a share of the causal ones (what dense
    attention fetches); `per_layer` `reads_causal` of each layer.
    """

    attended: float
    reads_causal: float
    reads_full: float
    kv_read: float
    per_layer: list[float]


class ReadCounter:
    """Counts the keys that each query of each head reads. Feed it to `apply(..., watch=counter.window(T))`."""

    def __init__(self, layers: int):
        self.attended, self.visible, self.causal, self.full = torch.zeros(4, layers, dtype=torch.float64)
        self.queries = torch.zeros(layers, dtype=torch.float64)

    def window(self, length: int) -> Callable[[Block, torch.Tensor], None]:
        """A watch for texts of `length` tokens without padding."""

        def watch(block: Block, probabilities: torch.Tensor) -> None:
            batch, heads, queries, _ = probabilities.shape
            for total, mask in ((self.attended, block.read), (self.visible, block.visible)):
                counts = mask.sum(-1)  # [B or 1, H or 1, n]
                total[block.layer] += float(counts.sum()) * batch * heads / (counts.shape[0] * counts.shape[1])
            self.causal[block.layer] += float((block.rows + 1).sum()) * batch * heads
            self.full[block.layer] += queries * length * batch * heads
            self.queries[block.layer] += queries * batch * heads

        return watch

    def reads(self, method) -> Reads:
        """What `method` read in all windows so far. Errors: BadSetting when nothing was seen."""
        if not self.queries.all():
            raise BadSetting("No attention passed this counter in some layer, so nothing can be said of its reads.")
        attended, causal = float(self.attended.sum()), float(self.causal.sum())
        return Reads(
            attended / float(self.queries.sum()),
            attended / causal,
            attended / float(self.full.sum()),
            method.fetched(attended, float(self.visible.sum())) / causal,
            (self.attended / self.causal).tolist(),
        )
