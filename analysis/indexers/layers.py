"""What indexers of all layers learn from: one pass of a frozen model over each text feeds them all."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..seam.layers import shape_of
from . import INDEXERS
from .base import Inputs
from .fit import Fitting
from .reading import read_layers
from .sizes import Sizes

Fittings = dict[tuple[int, str], Fitting]


def targets(model: Any, texts: Iterable[np.ndarray], kinds: Mapping[str, str], sizes: Sizes, seed: int = 0) -> Fittings:
    """Fittings by (place of the layer, name) of texts [T]; `kinds`: name -> kind, another name than the kind's is that
    of its null. The states of a layer are held once for all that learn from them."""
    fittings: Fittings = {}
    _, heads, kv_heads, dim = shape_of(model.lm)

    def take(layer: int, inputs: dict[str, Inputs]) -> None:
        hidden = inputs[""].hidden
        half = hidden.to(torch.float16)
        for name, kind in kinds.items():
            if (layer, name) not in fittings:
                shape = hidden.shape[-1], heads, kv_heads, dim
                fittings[layer, name] = Fitting(kind, *shape, sizes, seed + layer, name != kind)
            fittings[layer, name].begin(inputs[INDEXERS[kind].reads], half)

    def watch(layer: int, rows: Tensor, attention: Tensor) -> None:
        for name in kinds:
            fittings[layer, name].take(rows, attention)

    for ids in texts:
        read_layers(model, ids, {"", *(INDEXERS[kind].reads for kind in kinds.values())}, take, watch)
        for fitting in fittings.values():
            fitting.end()
    return fittings
