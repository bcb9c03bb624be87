"""StreamingLLM: the first tokens of the text and the last ones."""

from dataclasses import dataclass

import torch

from analysis.attention import Block
from analysis.methods.base import Method, setting


@dataclass
class StreamingLLM(Method):
    """Sinks and a window: a token reads the first `n_sink` tokens of the text and the last `window` ones, itself
    included.

    Attention that finds nothing useful falls on the first tokens. Leaving them out breaks many models; keeping four of
    them costs almost nothing. Nothing is learned and nothing in between is read: a method with learned groups must beat
    this at equal reads. Positions are those of the text, so a text can be as long as the model's context and no longer.
    The original renumbers its cache to go further, which needs the keys before their rotation and is not offered.
    """

    title = "StreamingLLM"
    paper = "Xiao et al., 2023 (StreamingLLM)"
    budgeted = "window"

    n_sink: int = setting(4, "first tokens of the text that are always read", "live", 0, 64)
    window: int = setting(128, "tokens that are always read, the token itself included", "live", 1, 1 << 20)

    def keep(self, block: Block) -> torch.Tensor:
        return block.near(self.window, self.n_sink)
