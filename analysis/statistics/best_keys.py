"""The keys that a layer finds best for a query, and how far layers find the same ones, in one pass over a text."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..seam.attention import apply
from ..seam.cache_checks import sees_all
from ..seam.calls import Block
from ..seam.hooks import Hooks
from .inputs import forward

if TYPE_CHECKING:
    from ..models import Model

# Of the second half of a text, where every query sees many keys.
QUERIES = 512


def best_keys(weights: Tensor, k: int) -> Tensor:
    """The `k` keys with most attention on average over the heads, of each query: places [B, n, k] of weights
    [B, H, n, T], all where there are no more."""
    return weights.float().mean(1).topk(min(k, weights.shape[-1]), sorted=False).indices


def whole_layers(lm: "Model") -> list[int]:
    """The layers, counted from 0, that keep the whole past."""
    return [layer for layer, whole in enumerate(sees_all(lm.lm)) if whole]


def rows_of(length: int) -> np.ndarray:
    """The queries of a text that are compared: some of its second half, evenly."""
    return np.unique(np.linspace(length // 2, length - 1, min(QUERIES, length - length // 2)).astype(int))


def overlap(best: Tensor, keys: int) -> np.ndarray:
    """float64 [L, L]: the share of one layer's keys that another layer chose too, mean over queries; `best` [L, n, k]
    different places of `keys` keys."""
    layers, queries, count = best.shape
    shares, chosen = np.ones((layers, layers)), torch.zeros(queries, keys, dtype=torch.bool)
    for layer in range(layers):
        chosen.zero_().scatter_(1, best[layer].long(), True)
        shares[layer] = [float(chosen.gather(1, other.long()).double().mean()) for other in best]
    return shares


@torch.no_grad()
def overlaps(lm: "Model", windows: list[np.ndarray], k: int) -> np.ndarray:
    """float64 [L, L]: the share of one layer's `k` best keys that are another's too, of the layers that keep the whole
    past, mean over windows [T]. Holds k numbers for each compared query and layer, and never T x T."""
    of_windows = []
    for ids in windows:
        parts: dict[int, list[Tensor]] = {layer: [] for layer in whole_layers(lm)}
        rows = torch.as_tensor(rows_of(len(ids)))

        def watch(block: Block, weights: Tensor, parts: dict = parts, rows: Tensor = rows) -> None:
            inside = torch.isin(block.rows.cpu(), rows)
            if block.layer in parts:
                parts[block.layer].append(best_keys(weights, k)[0].int().cpu()[inside])

        with apply(lm, Hooks(), watch=watch):
            forward(lm, torch.as_tensor(ids))
        of_windows.append(overlap(torch.stack([torch.cat(some) for some in parts.values()]), len(ids)))
    return np.mean(of_windows, axis=0)
