"""XAttention: blocks are chosen by sums along their antidiagonals."""

from dataclasses import dataclass

from analysis.errors import BadSetting
from analysis.methods.base import setting
from analysis.methods.blockwise import Blockwise


@dataclass
class XAttention(Blockwise):
    """Scores are summed along the antidiagonals of small squares: every query and every key of a square takes part, and
    columns and diagonals both cross it. Each row of blocks reads the fewest blocks that hold the share `threshold` of
    these sums, the first block and its own.

    The estimate costs one part in `stride` of all scores.
    """

    title = "XAttention"
    paper = "Xu et al., 2025 (XAttention), arXiv 2503.16428"
    kind = "xattention"
    given = ("stride", "threshold")

    stride: int = setting(8, "queries and keys of a square; must divide the block", "live", 1, 64)
    threshold: float = setting(0.9, "share of a row that is to be read", "live", 0.1, 1.0, 0.01)

    @classmethod
    def at_step(cls, step: int) -> dict:
        return {"threshold": max(step / 100, 0.1)}

    def __post_init__(self):
        super().__post_init__()
        if self.block % self.stride:
            raise BadSetting(f"stride is {self.stride} and must divide the block of {self.block}.")
