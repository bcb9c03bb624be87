"""The ceilings: the best keys of every query, chosen after all of them were scored."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..declaration import field
from ..kernels.pool import accelerated
from ..kernels.rank import top_p
from ..seam.calls import Block
from .base import Method


@dataclass
class OracleTopK(Method):
    """Each query of each head keeps its `k` keys of largest score, and drops the rest.

    It must score all keys to find them, so it saves at most half of the memory traffic and none of the arithmetic of
    the scores. It shows the most attention mass that k keys can hold, and so how close a method comes that chooses
    without looking. It is no upper bound on quality: dropping small weights changes a model too. Keys that tie with the
    k-th all stay, so slightly more than k may be read; the reads shown were counted.
    """

    title = "Oracle top-k"
    paper = "the ceiling of the attention that k keys keep (CSA, SparQ, Quest)"
    exported_with = {"fraction": 0.0, "keep_window": 0}
    budgeted = "k"
    competing = ("fraction",)
    ceiling = True
    # Every key, and the values of those that are kept.
    reads_of_attended, reads_of_visible = 0.5, 0.5

    k: int = field(64, "keys that each query keeps, of each head", low=1, high=1 << 20)
    fraction: float = field(
        0.0, "share of the visible keys to keep, where it is not 0, instead of k", low=0.0, high=1.0, step=0.05
    )
    keep_window: int = field(0, "last tokens that are kept besides, whatever their scores", low=0, high=1 << 20)

    def mask(self, block: Block) -> Tensor:
        scores = block.scores.float().masked_fill(~block.visible, -math.inf)
        best = scores >= self._smallest(scores, block.visible)
        if self.keep_window == 0:
            return best
        return best | (block.distances() < self.keep_window)[None, None]

    def _smallest(self, scores: Tensor, visible: Tensor) -> Tensor:
        """The smallest score that is kept, [B, H, n, 1]; -inf where there are fewer keys than are kept."""
        total = scores.shape[-1]
        if self.fraction == 0:
            return scores.topk(min(self.k, total), sorted=False).values.amin(-1, keepdim=True)
        count = (visible.sum(-1, keepdim=True).double() * self.fraction - 1e-6).ceil().clamp(min=1).long()
        if accelerated(scores):
            # it sorts faster than the host learns which ranks are needed
            return scores.sort(-1, descending=True).values.gather(-1, (count - 1).expand(*scores.shape[:-1], 1))
        # only the ranks between them have to be sorted
        low, high = int(count.min()), int(count.max())
        last = scores.topk(high, sorted=False).values.topk(high - low + 1, largest=False).values
        return last.gather(-1, (high - count).expand(*scores.shape[:-1], 1))


@dataclass
class OracleTopP(Method):
    """Each query of each head keeps its best keys, as many as hold the share `p` of its attention, and drops the rest.

    Beside *Oracle top-k* it is the second ceiling: a query whose attention is spread reads many keys, a sharp one few.
    It must score all keys to find them, so it is never a faster model itself.
    """

    title = "Oracle top-p"
    paper = "the ceiling of top-p methods (FlexPrefill, XAttention)"
    ceiling = True
    masked_scores = 4.5
    # Every key, and the values of those that are kept.
    reads_of_attended, reads_of_visible = 0.5, 0.5

    p: float = field(0.9, "share of a query's attention that is kept", low=0.01, high=1.0, step=0.01)

    def mask(self, block: Block) -> Tensor | None:
        if self.p == 1:
            return None
        scores = block.scores.detach().float().masked_fill(~block.visible, -math.inf)
        weights = torch.softmax(scores, -1).nan_to_num(0.0)
        return weights >= top_p(weights, self.p)[1][..., None]
