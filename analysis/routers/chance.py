"""Random buckets: what visiting l of them gives without looking."""

import torch
from torch import Tensor

from analysis.routers.base import Router

_ODD = (-7046029254386353131, -4658895280553007687, -7723592293110705685)  # of splitmix64, as int64


class Chance(Router):
    """l buckets drawn evenly, anew for each query. With positions the draw depends on seed, head, position and bucket
    alone, so that a text read token by token draws what it draws in one pass; without, numbers come one after another.
    """

    kind = "random"

    def __init__(self, centroids: Tensor, seed: int = 0):
        super().__init__(centroids, seed)
        self._draw = torch.Generator().manual_seed(seed)

    def scores(self, queries, positions=None, labels=None, mass=None, min_distance=0) -> Tensor:
        shape = (*queries.shape[:-1], self.buckets)
        if positions is None:
            return torch.rand(shape, generator=self._draw).to(queries.device)
        heads = queries.shape[:-2].numel()
        head, bucket = torch.arange(heads)[:, None, None], torch.arange(self.buckets)
        number = ((self.seed * heads + head) << 40) + (positions.cpu()[:, None] << 20) + bucket
        return _mixed(number).reshape(shape).to(queries.device)


def _mixed(number: Tensor) -> Tensor:
    """Evenly spread numbers in [0, 1) from counters int64 (splitmix64)."""
    number = number * _ODD[0]
    number = (number ^ ((number >> 30) & ((1 << 34) - 1))) * _ODD[1]
    number = (number ^ ((number >> 27) & ((1 << 37) - 1))) * _ODD[2]
    number = number ^ ((number >> 31) & ((1 << 33) - 1))
    return ((number >> 11) & ((1 << 53) - 1)).double().mul(2.0**-53).float()
