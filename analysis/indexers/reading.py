"""What indexers of all layers are fitted on and held against: one pass of a frozen model over each text."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..routers.rotation import unrotate
from ..seam.attention import apply
from ..seam.calls import Block
from ..seam.hooks import Hooks
from ..seam.layers import shape_of
from ..statistics import forward
from . import INDEXERS
from .base import Inputs
from .fit import Fitting
from .sizes import Sizes

# Of a layer's inputs by what an indexer reads: "", plain or rotated.
ByReads = dict[str, Inputs]
Fittings = dict[tuple[int, str], Fitting]


class _Reader(Hooks):
    """Dense attention that hands over what enters each layer, its queries and its keys."""

    dense = True

    def __init__(self, take: Callable[[int, ByReads], None], reads: set[str]) -> None:
        self.take, self.reads = take, reads
        self.hidden: Tensor | None = None

    def token_features(self, layer: int, hidden: Tensor, not_padding: Tensor | None) -> None:
        self.hidden = hidden[0].float()

    def encode_tokens(self, layer: int, query: Tensor, key: Tensor, past: int, module: Any, tables: Any) -> None:
        assert self.hidden is not None, "states enter a layer before it attends"
        self.take(layer, {kind: inputs_of(kind, self.hidden, query, key, module, tables) for kind in self.reads})


def inputs_of(reads: str, hidden: Tensor, query: Tensor, key: Tensor, module: Any, tables: Any) -> Inputs:
    """What an indexer that `reads` "", plain or rotated states sees of one text: hidden [T, d], query [1, H, T, D] and
    key [1, G, T, D] as the layer rotated them."""
    if not reads:
        return Inputs(hidden)
    states = [x[:1].float() for x in (query, key)]
    if reads == "plain":
        states = [unrotate(x, module, tables) for x in states]
    queries, keys = (x[0].transpose(0, 1) for x in states)
    return Inputs(hidden, None, queries, keys)


@torch.no_grad()
def read_layers(
    model: Any,
    ids: np.ndarray,
    reads: set[str],
    take: Callable[[int, ByReads], None],
    watch: Callable[[int, Tensor, Tensor], None],
) -> None:
    """One pass over a text [T]: `take(layer, inputs)` before each layer's attention, then for its blocks of queries
    `watch(layer, rows [n], attention [H, n, T])`."""
    tokens = len(ids)

    def see(block: Block, probabilities: Tensor) -> None:
        whole = probabilities.new_zeros(*probabilities.shape[1:3], tokens)
        whole[..., block.columns] = probabilities[0]
        watch(block.layer, block.rows, whole)

    with apply(model, _Reader(take, reads), watch=see):
        forward(model, ids)


def targets(model: Any, texts: Iterable[np.ndarray], kinds: Mapping[str, str], sizes: Sizes, seed: int = 0) -> Fittings:
    """Fittings by (place of the layer, name) of texts [T]; `kinds`: name -> kind, another name than the kind's is that
    of its null. The states of a layer are held once for all that learn from them."""
    fittings: Fittings = {}
    _, heads, kv_heads, dim = shape_of(model.lm)

    def take(layer: int, inputs: ByReads) -> None:
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
