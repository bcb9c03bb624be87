"""Routers that learn nothing: random buckets, the buckets of the last keys, and those that really hold most."""

import torch
from torch import Tensor

from .base import RoutedText, Router

# Counters that are hashed and not numbers that are drawn in turn: blocks of a text may come in any size.
_ODD = (-7046029254386353131, -4658895280553007687, -7723592293110705685)  # of splitmix64, as int64


class Chance(Router):
    """l buckets drawn evenly, anew for each query. With positions the draw depends on seed, head, position and bucket
    alone, so that a text read token by token draws what it draws in one pass; without, numbers come one after another.
    """

    kind = "random"

    def __init__(self, centroids: Tensor, seed: int = 0) -> None:
        super().__init__(centroids, seed)
        self._draw = torch.Generator().manual_seed(seed)

    def _scores(self, queries: Tensor, text: RoutedText) -> Tensor:
        shape = (*queries.shape[:-1], self.buckets)
        if text.positions is None:
            return torch.rand(shape, generator=self._draw).to(queries.device)
        heads = queries.shape[:-2].numel()
        head, bucket = (torch.arange(count, device=text.positions.device) for count in (heads, self.buckets))
        number = ((self.seed * heads + head[:, None, None]) << 40) + (text.positions[:, None] << 20) + bucket
        # splitmix64 makes evenly spread numbers in [0, 1) of counters
        number = number * _ODD[0]
        number = (number ^ ((number >> 30) & ((1 << 34) - 1))) * _ODD[1]
        number = (number ^ ((number >> 27) & ((1 << 37) - 1))) * _ODD[2]
        number = number ^ ((number >> 31) & ((1 << 33) - 1))
        chances = ((number >> 11) & ((1 << 53) - 1)).double().mul(2.0**-53).float()
        return chances.reshape(shape).to(queries.device)


class Recency(Router):
    """Scores a bucket by the place of its newest key that is at least `min_distance` before the query (-1: it has
    none), so the nearest of the far keys are visited: a control that the paper lacks (definitions 2.4)."""

    kind = "recency"
    reads = frozenset({"positions", "labels"})

    def _scores(self, queries: Tensor, text: RoutedText) -> Tensor:
        assert text.positions is not None and text.labels is not None
        newest = newest_key(text.labels, text.positions, self.buckets, text.min_distance).float()
        return newest.expand(*queries.shape[:-1], self.buckets)


class Oracle(Router):
    """Scores a bucket by the mass it really has: no choice of l buckets of the same partition holds more."""

    kind = "oracle"
    reads = frozenset({"mass"})

    def _scores(self, queries: Tensor, text: RoutedText) -> Tensor:
        assert text.mass is not None
        return text.mass


def newest_key(labels: Tensor, positions: Tensor, buckets: int, min_distance: int = 0) -> Tensor:
    """int64 [..., n, C]: place of each bucket's newest key at least `min_distance` before positions [n] (ascending).

    labels [..., T], -1 for a key that does not count. Only the stretch between first and last query is spread out.
    """
    # Newest place that may count, [n].
    last = (positions - min_distance).to(labels.device)
    first, stop = max(0, int(last[0]) + 1), int(last[-1]) + 1
    # One column more, which takes what does not count.
    before_block = labels.new_full((*labels.shape[:-1], buckets + 1), -1)
    places = torch.arange(first, device=labels.device).expand(*labels.shape[:-1], first)
    before_block.scatter_reduce_(-1, labels[..., :first] % (buckets + 1), places, "amax")
    newest_place = before_block[..., None, :buckets].expand(*labels.shape[:-1], len(last), buckets)
    if stop > first:
        places = torch.arange(first, stop, device=labels.device)
        hit = labels[..., first:stop, None] == torch.arange(buckets, device=labels.device)  # [..., t, C]
        newest = torch.where(hit, places[:, None], -1).cummax(-2).values
        column = (last - first).clamp(min=0)
        inside = newest[..., column, :].masked_fill((last < first)[:, None], -1)
        newest_place = torch.maximum(newest_place, inside)
    return newest_place
