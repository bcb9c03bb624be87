"""XAttention: blocks are chosen by sums along their antidiagonals."""

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..declaration import field
from ..errors import BadSetting
from ..kernels.block_maps import fewest_reaching, in_blocks, map_by_rows
from ..kernels.scoring import Scoring
from .blockwise import Blockwise


@dataclass
class XAttention(Blockwise):
    """Scores are summed along the antidiagonals of small squares: every query and every key of a square takes part, and
    columns and diagonals both cross it. Each row of blocks reads the fewest blocks that hold the share `threshold` of
    these sums, the first block and its own.

    The estimate costs one part in `stride` of all scores.
    """

    title = "XAttention"
    paper = "Xu et al., 2025 (XAttention), arXiv 2503.16428"
    budget_steps = {"threshold": lambda step: max(step / 100, 0.1)}

    stride: int = field(8, "queries and keys of a square; must divide the block", low=1, high=64)
    threshold: float = field(0.9, "share of a row that is to be read", low=0.1, high=1.0, step=0.01)

    def check(self, lm: Any) -> None:
        super().check(lm)
        self._squares()

    def choose_blocks(self, q: Tensor, k: Tensor, scoring: Scoring) -> Tensor:
        squares, mean = self._squares(), replace(scoring, factor=scoring.factor / self.stride)
        # Keys side by side times queries side by side in the opposite order: one product sums each antidiagonal.
        q, k = (
            F.pad(x, (0, 0, 0, -x.shape[2] % self.stride)).unflatten(2, (-1, self.stride)) for x in (q, k)
        )  # [B, heads, T / stride, stride, D]
        q, k = q.flip(3).flatten(3), k.flatten(3)

        def judge(scores: Tensor) -> Tensor:
            share = torch.softmax(scores, -1).sum(-2)  # [..., squares]
            return fewest_reaching(in_blocks(share, squares).sum(-1), self.threshold)

        blocks = map_by_rows(q, k, squares, mean, judge)
        blocks[..., 0] = True
        return blocks

    def _squares(self) -> int:
        """Squares in a row of a block. Errors: BadSetting."""
        if self.block % self.stride:
            raise BadSetting(f"stride is {self.stride} and must divide the block of {self.block}.")
        return self.block // self.stride
