"""What all heads do at some queries of a long text: their numbers and the key read most there, and the largest numbers
of all queries."""

import numpy as np
import torch

from ..seam.attention import Block
from .heads import ALL, HeadReading

# Largest numbers that are kept of every head and statistic.
TOP = 5


class QueryReading(HeadReading):
    """A `HeadReading` of one text of T tokens in windows, which keeps, beside the means of all queries:

    `values` float32 [Q, L, H, 9]: the numbers of every head at the `queries` (sorted places in the text, none the first
    of its window), NaN where not defined; `best` int64 and `weight` float32 [Q, L, H]: the key that is read most there,
    the window's first token left out, and what it gets; `high` float32 and `at` int64 [L, H, 9, TOP]: the largest
    numbers of all queries and their places, -inf and -1 where there are fewer.

    Feed it each window: `begin_window(offset)`, then `read(..., reader=Reader(it, [it.watch]))`.
    """

    def __init__(self, layers: int, heads: int, queries: np.ndarray, mass: float = 0.9, window: int = 128) -> None:
        super().__init__(layers, heads, mass, window)
        self.sampled_queries, self.offset = queries, 0
        self.values = np.full((len(queries), layers, heads, len(ALL)), np.nan, np.float32)
        self.best = np.zeros((len(queries), layers, heads), np.int64)
        self.weight = np.zeros((len(queries), layers, heads), np.float32)
        self.high = np.full((layers, heads, len(ALL), TOP), -np.inf, np.float32)
        self.at = np.full((layers, heads, len(ALL), TOP), -1, np.int64)

    def begin_window(self, offset: int) -> None:
        """What is read next begins at this token of the text."""
        self.offset = offset

    def _inside(self, first: int, count: int) -> tuple[slice, np.ndarray]:
        """(which of the queries lie in `count` tokens of the window from `first` on, their places among these)."""
        start = self.offset + first
        low, high = np.searchsorted(self.sampled_queries, [start, start + count])
        return slice(low, high), self.sampled_queries[low:high] - start

    def _sum(self, layer: int, text: int, head: int, measured: np.ndarray, start: int) -> None:
        super()._sum(layer, text, head, measured, start)
        if head >= self.heads:  # even reading
            return
        sampled, rows = self._inside(start, len(measured))
        self.values[sampled, layer, head] = measured[rows]
        defined = np.where(np.isnan(measured), -np.inf, measured).T.astype(np.float32)  # [9, n]
        both = np.concatenate([self.high[layer, head], defined], 1)
        places = np.broadcast_to(self.offset + start + np.arange(len(measured)), defined.shape)
        places = np.concatenate([self.at[layer, head], np.where(np.isneginf(defined), -1, places)], 1)
        order = np.argsort(-both, 1, kind="stable")[:, :TOP]
        self.high[layer, head] = np.take_along_axis(both, order, 1)
        self.at[layer, head] = np.take_along_axis(places, order, 1)

    def watch(self, block: Block, probabilities: torch.Tensor) -> None:
        """The key that each query of the sample reads most, in a block of probabilities [1, H, n, m]."""
        sampled, rows = self._inside(block.first_row, len(block.rows))
        if not len(rows):
            return
        keys = probabilities[0][:, rows].masked_fill(block.columns == 0, -1.0)  # [H, r, m]
        weight, column = keys.max(-1)
        self.best[sampled, block.layer] = (block.columns[column].T + self.offset).cpu().numpy()
        self.weight[sampled, block.layer] = weight.T.cpu().numpy()
