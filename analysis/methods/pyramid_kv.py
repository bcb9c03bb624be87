"""PyramidKV: SnapKV with a larger budget in early layers than in late ones."""

from dataclasses import dataclass

from torch import Tensor

from ..declaration import field
from .evicting import evict, largest
from .snapkv import SnapKV

LAST_LAYER = 20  # the last layer keeps the mean budget divided by this, beside its window (arXiv 2406.02069)


@dataclass
class PyramidKV(SnapKV):
    """SnapKV's scores with a budget that falls on a line from the first layer to the last.

    Early layers spread their attention and late ones gather it on few tokens, so late layers are given less: the last
    keeps its window and a twentieth of the average, the first nearly twice the average. All layers together keep what
    SnapKV keeps, as long as no layer's share is more than the prompt has. In a prompt shorter than twice what stays,
    the window apart, the first layer would get more than there is: the line is then *turned* flatter about its middle.
    The authors' code gives *even* budgets there, and is SnapKV: of 768 tokens without 25%, 0.019 nats per token of
    loss in the stored table, where the turned line has 0.039.
    """

    title = "PyramidKV"
    paper = "Cai et al., 2024 (PyramidKV), arXiv 2406.02069"

    short: str = field(
        "turned",
        "budgets in a prompt too short for the line: a flatter line, or even ones",
        options=("turned", "even"),
    )

    def kept_keys(self, layer: int, scores: Tensor) -> Tensor:
        length, removed = scores.shape[-1], self.removed(layer)
        mean = int(length * (1 - removed))
        if self.short == "even" and length < 2 * (mean - self.window):
            return evict(scores, removed)
        return largest(scores, falling_budget(layer, self.layers_, mean, self.window, length))


def falling_budget(layer: int, layers: int, count: int, window: int, length: int) -> int:
    """Keys that a head of `layer` keeps where `count` of `length` is the mean over `layers`.

    Beside the `window`, which always stays, the budget falls on a line from the first layer to the last: the last has a
    twentieth of the mean, the first twice the mean less that, and none more than there are keys.
    """
    spare = max(0, count - window)
    low = spare / LAST_LAYER
    high = 2 * spare - low
    room = max(0, length - window)
    # Where the first layer would get more than there is, the line turns about its middle, which keeps the sum.
    if high > room:
        low, high = low + high - room, room
    depth = layer / (layers - 1) if layers > 1 else 0.5
    return min(count, window) + round(high - depth * (high - low))
