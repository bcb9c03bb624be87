"""Skip softmax (BLASST): blocks whose scores all lie far below what was seen already are left out."""

from dataclasses import dataclass

from analysis.methods.base import setting
from analysis.methods.blockwise import Blockwise


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
    kind = "skip_softmax"
    given = ("scale",)

    scale: float = setting(
        100.0, "by the length of the prompt: the weight below which a block is left out", "live", 0.0, 1e5, 10.0
    )

    @classmethod
    def at_step(cls, step: int) -> dict:
        return {"scale": round(10 ** (5 - step / 16), 4)}
