"""Skip softmax (BLASST): blocks whose scores all lie far below what was seen already are left out."""

import math
from dataclasses import dataclass

from torch import Tensor

from ..declaration import field
from ..kernels.block_maps import map_by_rows, rises
from ..kernels.scoring import Scoring
from .blockwise import Blockwise


@dataclass
class SkipSoftmax(Blockwise):
    """Scores of a prompt come in blocks, from left to right. A block is left out if in all of its rows the largest
    score lies far below the largest so far: its softmax and its values would change next to nothing.

    *Far* is the logarithm of `scale` by the length of the prompt, so a larger scale leaves more out. All scores are
    computed to know this: the gain is the softmax and the product with the values, and only in a kernel that skips them
    as it goes. Here the map is made first and the blocks are read afterwards; the time of both is counted. A block has
    128 queries, and the best of them decides for all, so a later query of a block can keep it for an earlier one.
    """

    title = "Skip softmax"
    paper = "Yuan et al., 2025 (BLASST), arXiv 2512.12087"
    budget_steps = {"scale": lambda step: round(10 ** (5 - step / 16), 4)}

    scale: float = field(
        100.0, "by the length of the prompt: the weight below which a block is left out", low=0.0, high=1e5, step=10.0
    )

    def choose_blocks(self, q: Tensor, k: Tensor, scoring: Scoring) -> Tensor:
        # lambda = scale / T of the paper: the share of a key's weight that is thought worth a look
        edge = math.log(self.scale / q.shape[2]) if self.scale else -math.inf
        return map_by_rows(q, k, self.block, scoring, lambda scores: rises(scores, self.block) > edge)
