"""Longformer: a sliding window in every layer, and a few tokens that all read."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..declaration import field
from ..seam.calls import Block
from .base import Method

DILATED_HEADS = 2  # of each layer in the upper half (section 4.1 of the paper)


@dataclass
class Longformer(Method):
    """A token reads the last `window` tokens, itself included, and the first `n_global` ones. Those are *global*: every
    token reads them, and they read everything before them.

    With equal windows and no dilation this is exactly a window with sinks (StreamingLLM): the first tokens of a causal
    text have nothing before them but each other, so being global gives them nothing. Longformer adds windows that
    *grow* with depth, narrow below and wide above (the mean over layers stays `window`), and *dilation*: two heads of
    each layer in the upper half read every second, third, ... token, so that as many keys reach farther back. The
    original is trained this way, with separate projections for global tokens; here a model trained dense reads so
    through its own projections, without training.
    """

    title = "Longformer"
    paper = "Beltagy et al., 2020 (Longformer), sections 3.1 and 4.1"
    budgeted = "window"
    layers_ = 1

    window: int = field(128, "tokens that are always read, the token itself included", low=1, high=1 << 20)
    n_global: int = field(1, "first tokens of the text, which every token reads", low=0, high=64)
    widths: str = field(
        "equal", "one window for all layers, or windows that grow with depth", options=("equal", "growing")
    )
    dilation: int = field(
        1, "two heads of each layer in the upper half read every n-th token; 1: no dilation", low=1, high=64
    )

    def check(self, lm: Any) -> None:
        self.layers_ = lm.config.get_text_config().num_hidden_layers

    def width(self, layer: int) -> int:
        """The window of a layer, in tokens."""
        if self.widths == "equal":
            return self.window
        return max(1, round(2 * self.window * (layer + 1) / (self.layers_ + 1)))

    def mask(self, block: Block) -> Tensor:
        distance, width = block.distances(), self.width(block.layer)
        near = (distance < width)[None]  # [1, n, Tk]
        if self.dilation > 1 and 2 * block.layer >= self.layers_:
            spread = (distance % self.dilation == 0) & (distance < width * self.dilation)
            heads = block.scores.shape[1]
            plain = max(0, heads - DILATED_HEADS)
            near = torch.cat([near.expand(plain, -1, -1), spread.expand(heads - plain, -1, -1)])  # [H, n, Tk]
        return near[None] | (block.columns < block.first[:, None] + self.n_global)[:, None, None]
