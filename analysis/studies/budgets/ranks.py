"""How many keys hold most of a head's attention: the top-p rank of every (layer, head), streamed, and by position."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from ...errors import BadSetting
from ...kernels.pool import each
from ...kernels.rank import check_mass, top_p_rank
from ...methods import METHODS
from ...models import Model
from ...seam.attention import Block, apply
from ...statistics import forward

BINS = 16


@dataclass(frozen=True)
class Ranks:
    """Mean top-p rank by position [L, H, T] over windows, in keys. The paper's "effective rank"."""

    by_position: np.ndarray

    def mean(self, min_pos: int = 0) -> np.ndarray:
        """[L, H]: over the positions from `min_pos` on; 0 is the paper's letter. Errors: BadSetting."""
        length = self.by_position.shape[2]
        if isinstance(min_pos, bool) or not 0 <= min_pos < length:
            raise BadSetting(f"min_pos is {min_pos} and must lie between 0 and {length - 1}, the last position.")
        return self.by_position[:, :, min_pos:].mean(2)

    def positions(self, bins: int = BINS) -> list[dict]:
        """`bin first last rank most` by position in the window: mean over heads, and what the position allows.

        Early queries see few keys, so their ranks are small whatever the head does: what pulls the mean down.
        """
        edges = np.linspace(0, self.by_position.shape[2], bins + 1).round().astype(int)
        spans = [(int(a), int(b)) for a, b in zip(edges[:-1], edges[1:], strict=True) if b > a]
        return [
            {
                "bin": number,
                "first": a,
                "last": b,
                "rank": float(self.by_position[:, :, a:b].mean()),
                "most": (a + b + 1) / 2,
            }
            for number, (a, b) in enumerate(spans)
        ]


def measure_ranks(
    model: Model, windows: np.ndarray, mass: float = 0.9, progress: Callable[[float, str], None] | None = None
) -> Ranks:
    """Top-p ranks of dense attention on windows of token ids [n, T]; nothing of size T x T is held.

    `progress(fraction, stage)` is called before each window. CSA, step 1. Errors: BadSetting for a mass not in (0, 1].
    """
    check_mass(mass)
    count, length = windows.shape
    sums = np.zeros((model.num_layers, model.num_heads, length))

    def watch(block: Block, probabilities: torch.Tensor) -> None:
        rows, total = block.rows.cpu().numpy(), sums[block.layer]

        def head(h: int) -> None:
            total[h, rows] += top_p_rank(probabilities[0, h], mass).cpu().numpy()

        each(head, range(probabilities.shape[1]))

    for index, ids in enumerate(windows):
        if progress:
            progress(index / count, f"ranks, window {index + 1} of {count}")
        with apply(model, METHODS["dense"](), watch=watch):
            forward(model, ids)
    return Ranks(sums / count)
