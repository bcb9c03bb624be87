"""Oracle top-p: as many of the best keys as hold a share of the attention, chosen after all were scored."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..declaration import field
from ..kernels.rank import top_p
from ..seam.calls import Block
from .base import Method


@dataclass
class OracleTopP(Method):
    """Each query of each head keeps its best keys, as many as hold the share `p` of its attention, and drops the rest.

    Beside *Oracle top-k* it is the second ceiling: a query whose attention is spread reads many keys, a sharp one few.
    It must score all keys to find them, so it is never a faster model itself.
    """

    title = "Oracle top-p"
    paper = "the ceiling of top-p methods (FlexPrefill, XAttention)"
    ceiling = True
    reads_of_attended = reads_of_visible = 0.5  # every key, and the values of those that are kept

    p: float = field(0.9, "share of a query's attention that is kept", low=0.01, high=1.0, step=0.01)

    def mask(self, block: Block) -> Tensor | None:
        if self.p == 1:
            return None
        scores = block.scores.detach().float().masked_fill(~block.visible, -math.inf)
        weights = torch.softmax(scores, -1).nan_to_num(0.0)
        return weights >= top_p(weights, self.p)[1][..., None]
