"""PyramidKV: SnapKV with a larger budget in early layers than in late ones."""

from dataclasses import dataclass

from torch import Tensor

from analysis.calls import Prompt
from analysis.eviction.budget import falling, keep_most
from analysis.methods.base import setting
from analysis.methods.evicting import Evicting, scores


@dataclass
class PyramidKV(Evicting):
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

    window: int = setting(64, "last tokens of the prompt, whose queries decide and which always stay", "live", 1, 1024)

    short: str = setting(
        "turned",
        "budgets in a prompt too short for the line: a flatter line, or even ones",
        "live",
        options=("turned", "even"),
    )

    def worth(self, prompt: Prompt) -> Tensor:
        return scores("snapkv", prompt, self.window)

    def stay(self, layer: int, worth: Tensor) -> Tensor:
        length, mean = worth.shape[-1], int(worth.shape[-1] * (1 - self.ratio))
        if self.short == "even" and length < 2 * (mean - self.window):
            return keep_most(worth, mean)
        return keep_most(worth, falling(layer, self.layers_, mean, self.window, length))
