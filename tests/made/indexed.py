"""Indexers of the tiny models with random tensors."""

import torch

from analysis.fitted import Fitted
from analysis.indexers.fit import FittedIndexer, Fitting
from analysis.indexers.sizes import Sizes
from analysis.indexers.state import packed
from tests.made.tiny import LAYERS, WIDTH


def made_indexers(
    *kinds: str, heads: int = 4, kv_heads: int = 1, dim: int = 8, layers: int = LAYERS, width: int = WIDTH
) -> Fitted:
    """Small ones of these kinds; blocks and groups of 4 tokens."""
    sizes, fitted = Sizes(index_heads=2, index_dim=8, unit=4, ratio=4), {}
    for layer in range(layers):
        for kind in kinds:
            fitting = Fitting(kind, width, heads, kv_heads, dim, sizes, seed=layer)
            if kind == "low_rank":
                draw = torch.Generator().manual_seed(layer)
                fitting.indexer.state = {
                    name: torch.randn(8, width, generator=draw) for name in ("q.weight", "k.weight")
                }
            fitted[layer, kind] = FittedIndexer(fitting.indexer, fitting.sizes)
    return packed(fitted)
