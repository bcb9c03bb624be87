"""How exact the scores of a model are, layer by layer: on a sample of queries, held against float64."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from torch import nn

from ..kernels.scoring import Scoring

# Queries of a window, evenly spaced up to its last.
SAMPLE = 16
COLUMNS = ("largest_score", "difference", "own_difference")


class Numerics:
    """Of every layer the largest size of a score, and how far the weights of a query lie from those in float64.

    `difference` is of scores in float32, as they are computed here; `own_difference` of scores in the model's own type,
    in which large scores that lie close together become equal. Both are the largest difference of a weight (0 to 1).
    """

    def __init__(self, layers: int, numbers: Sequence[int] | None = None) -> None:
        """`numbers`: what the layers are called, 0 to L - 1 unless given."""
        self.found, self.numbers = np.zeros((layers, len(COLUMNS))), numbers or range(layers)

    @torch.no_grad()
    def look(self, layer: int, query: torch.Tensor, key: torch.Tensor, module: nn.Module) -> None:
        """Add a text without padding: query [B, H, T, D] and key [B, G, T, D] as they meet in a layer's `module`."""
        length = query.shape[2]
        scaling = float(getattr(module, "scaling", None) or query.shape[-1] ** -0.5)
        softcap, window = (getattr(module, name, None) for name in ("attn_logit_softcapping", "sliding_window"))
        scoring = Scoring(scaling, softcap)
        rows = torch.linspace(length - 1, 0, min(SAMPLE, length)).round().long().to(query.device)
        back = rows[:, None] - torch.arange(length, device=query.device)
        hidden = (back < 0) | (back >= (window or length))

        def scores(kind: torch.dtype) -> torch.Tensor:
            return scoring.scores(query[:, :, rows].to(kind), key.to(kind)).double().masked_fill(hidden, float("-inf"))

        exact = scores(torch.float64)
        weights = exact.softmax(-1)
        kinds = torch.float32, query.dtype
        apart = {kind: (scores(kind).softmax(-1) - weights).abs().max() for kind in dict.fromkeys(kinds)}
        largest = exact.masked_fill(hidden, 0.0).abs().max()
        errors = [float(number) for number in (largest, *(apart[kind] for kind in kinds))]
        self.found[layer] = np.maximum(self.found[layer], errors)

    def table(self) -> pd.DataFrame:
        """One row per layer: `layer largest_score difference own_difference`."""
        return pd.DataFrame({"layer": self.numbers, **dict(zip(COLUMNS, self.found.T, strict=True))})
