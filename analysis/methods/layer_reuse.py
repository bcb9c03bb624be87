"""Keys that a layer chooses and the layers below it read too."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..declaration import field
from ..errors import BadSetting
from ..kernels.scoring import softmax
from ..metrics.anchors import spelled, spread
from ..seam.cache_checks import sees_all
from ..seam.calls import Block
from ..statistics.best_keys import best_keys
from .base import Method


@dataclass
class LayerReuse(Method):
    """Some layers, the *anchors*, choose for every query the `k` keys with most attention, on average over their heads;
    the layers below an anchor read the same keys, up to the next anchor.

    What one layer finds important, its neighbours often do too, so most layers need not score the other keys at all.
    The first layer is always an anchor. Without a `pattern` the `anchors` are spread evenly over the layers; a pattern
    has one letter for each layer, F for one that chooses and S for one that reads what the last F chose, as
    `export-eviction --method layer_reuse` places them. Kascade besides keeps its first layer dense and matches heads
    one by one: here a layer has one set of keys. Layers with a sliding window read all of it, and a masked pass shows
    the quality, not the speed.
    """

    title = "Layer reuse"
    paper = "Deshmukh et al., 2025 (Kascade), arXiv 2512.16391"
    budgeted = "k"

    k: int = field(64, "keys that each query reads, the same in all heads of a layer", low=1, high=1 << 20)
    anchors: int = field(2, "layers that choose keys, where there is no pattern", low=1, high=256)
    pattern: str = field(
        "",
        "which layers choose, a letter for each: F, or S for what the last F chose",
        price="refit",
        pattern="(F[FS]*)?",
    )

    @property
    def reads_of_visible(self) -> float:
        """The keys that anchors score; the values of what is read are counted with it."""
        return self.share_ / 2 if hasattr(self, "share_") else 0.0

    def check(self, lm: Any) -> None:
        self.whole_ = sees_all(lm)
        layers = len(self.whole_)
        self.pattern_ = self.pattern or spelled(spread(layers, self.anchors), layers)
        if len(self.pattern_) != layers:
            raise BadSetting(f"The pattern {self.pattern_[:40]} does not fit a model of {layers} layers: name each.")
        self.share_ = self.pattern_.count("F") / layers
        # First query of a block -> places of the keys that the last anchor chose for its queries, [B, n, k].
        self.chosen_: dict[int, Tensor] = {}

    def token_features(self, layer: int, hidden: Tensor, not_padding: Tensor | None) -> None:
        """Nothing is remembered; an anchor begins anew."""
        if self._chooses(layer):
            self.chosen_.clear()

    def mask(self, block: Block) -> Tensor | None:
        if not self.whole_[block.layer]:
            return None
        if self._chooses(block.layer):
            scores = block.scores.detach().float().masked_fill(~block.visible, -torch.inf)
            self.chosen_[block.first_row] = best_keys(softmax(scores, block.sinks).nan_to_num(0.0), self.k)
        chosen = self.chosen_[block.first_row]
        read = torch.zeros(*chosen.shape[:2], block.scores.shape[-1], dtype=torch.bool, device=chosen.device)
        return read.scatter_(-1, chosen, True)[:, None]

    def _chooses(self, layer: int) -> bool:
        """Whether a layer is an anchor; the first that keeps the whole past is one in any case."""
        return self.whole_[layer] and (self.pattern_[layer] == "F" or not any(self.whole_[:layer]))
