"""XAttention: blocks are chosen by sums along their antidiagonals."""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import BadSetting
from ..kernels.block_maps import check_between, fewest_reaching, in_blocks, map_by_rows
from ..kernels.scoring import Scoring
from .base import setting
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

    stride: int = setting(8, "queries and keys of a square; must divide the block", "live", 1, 64)
    threshold: float = setting(0.9, "share of a row that is to be read", "live", 0.1, 1.0, 0.01)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_stride(self.stride, self.block)

    def choose_blocks(self, q: Tensor, k: Tensor, scoring: Scoring) -> Tensor:
        return xattention(q, k, self.block, scoring, self.stride, self.threshold)


def xattention(q: Tensor, k: Tensor, block: int, scoring: Scoring, stride: int = 8, threshold: float = 0.9) -> Tensor:
    """Scores are summed along antidiagonals of `stride` x `stride` squares, by one product of keys side by side and
    queries side by side in the opposite order. Their softmax, summed in blocks, stands for the attention; each row of
    blocks keeps the fewest that reach the share `threshold`, the first and its own."""
    check_between("threshold", threshold, 0.0, 1.0)
    _check_stride(stride, block)
    squares, mean = block // stride, replace(scoring, factor=scoring.factor / stride)
    length = q.shape[2]
    q, k = (F.pad(x, (0, 0, 0, -length % stride)).unflatten(2, (-1, stride)) for x in (q, k))  # [B, H, T / S, S, D]
    q, k = q.flip(3).flatten(3), k.flatten(3)

    def kept(scores: Tensor) -> Tensor:
        share = torch.softmax(scores, -1).sum(-2)  # [..., squares]
        return fewest_reaching(in_blocks(share, squares).sum(-1), threshold)

    blocks = map_by_rows(q, k, squares, mean, kept)
    blocks[..., 0] = True
    return blocks


def _check_stride(stride: int, block: int) -> None:
    if stride < 1 or block % stride:
        raise BadSetting(f"stride is {stride} and must divide the block of {block}.")
