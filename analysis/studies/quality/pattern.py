"""Which layers choose keys for others, on trial like a calibration of eviction: the pattern that leaves for a stack."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ...errors import BadSetting
from ...methods.layer_reuse import LayerReuse
from ...metrics.anchors import place_anchors, serving, spelled, spread
from ...models import Model
from ...statistics.best_keys import overlaps, whole_layers
from .trial import Kept, Trial, agreement

# Patterns that are drawn at random: as a null, and to say how far they agree.
DRAWN, COMPARED = 3, 100


@dataclass(frozen=True)
class Pattern:
    """Used as a `Kind` of eviction: `anchors` layers choose `keys` keys for those below, by the overlap of layers."""

    anchors: int
    keys: int

    null: ClassVar[str] = "as many layers that choose, at even distances: equal reads"
    suffix: ClassVar[str] = ".txt"

    def fit(self, lm: Model, windows: Tensor, ratio: float) -> str:
        """The pattern by what layers read of calibration windows [n, T]."""
        whole = whole_layers(lm)
        if not 0 < self.anchors <= len(whole):
            raise BadSetting(f"{self.anchors} of {len(whole)} layers cannot choose: give --anchors fewer.")
        placed = place_anchors(overlaps(lm, list(windows.numpy()), self.keys), self.anchors)
        return spelled([whole[anchor] for anchor in placed], lm.num_layers)

    def method(self, lm: Model, fitted: str, ratio: float, share: str) -> LayerReuse:
        """The method with a pattern."""
        return LayerReuse(k=self.keys, pattern=fitted)

    def nulls(self, lm: Model, ratio: float) -> dict[str, list[Any]]:
        """Anchors at even distances, and at random ones."""
        drawn = self._drawn(lm.num_layers)
        patterns = {
            "null": [spelled(spread(lm.num_layers, self.anchors), lm.num_layers)],
            "random": [next(drawn) for _ in range(DRAWN)],
        }
        return {name: [LayerReuse(k=self.keys, pattern=one) for one in some] for name, some in patterns.items()}

    def choices(self, trial: Trial | None, fitted: str) -> list[Kept]:
        """Of every layer but the first, which one chooses for it."""
        served = serving([layer for layer, letter in enumerate(fitted) if letter == "F"], len(fitted))
        return [{layer: torch.arange(len(fitted)) == served[layer] for layer in range(1, len(fitted))}]

    def chance(self, lm: Model, fitted: str, ratio: float) -> float:
        """The mean over patterns drawn at random."""
        own, drawn = self.choices(None, fitted), self._drawn(lm.num_layers)
        return float(np.mean([agreement(own, self.choices(None, next(drawn))) for _ in range(COMPARED)]))

    def told(self, fitted: str, ratio: float) -> str:
        """How a sentence begins about what it loses."""
        return f"With the pattern {fitted} and {self.keys} keys a query"

    def write(self, path: Path, lm: Model, fitted: str) -> bytes:
        """A line: F for a layer that chooses keys, S for one that reads what the last F chose."""
        return f"{fitted}\n".encode()

    def _drawn(self, layers: int) -> Iterator[str]:
        """Patterns at random, the first layer an anchor."""
        draw = np.random.default_rng(0)
        while True:
            others = draw.choice(np.arange(1, layers), self.anchors - 1, replace=False)
            yield spelled([0, *others.tolist()], layers)
