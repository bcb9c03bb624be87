"""What indexers of all layers are fitted on and held against: one pass of a frozen model over a text."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..routers.rotation import unrotate
from ..seam.attention import apply
from ..seam.calls import Block
from ..seam.hooks import Hooks
from ..statistics import forward
from .base import Inputs

# Of a layer's inputs by what an indexer reads: "", plain or rotated.
ByReads = dict[str, Inputs]


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
