"""Recency: the buckets whose keys came last."""

import torch
from torch import Tensor

from analysis.errors import BadSetting
from analysis.routers.base import Router


class Recency(Router):
    """Scores a bucket by the place of its newest key that is at least `min_distance` before the query (-1: it has
    none), so the nearest of the far keys are visited: a control that the paper lacks (definitions 2.4)."""

    kind = "recency"
    reads = frozenset({"positions", "labels"})

    def scores(self, queries, positions=None, labels=None, mass=None, min_distance=0) -> Tensor:
        if positions is None or labels is None:
            raise BadSetting("Recency needs the places of the queries and the bucket of each key of this text.")
        newest = newest_key(labels, positions, self.buckets, min_distance).float()  # [..., n, C]
        return newest.expand(*queries.shape[:-1], self.buckets)


def newest_key(labels: Tensor, positions: Tensor, buckets: int, min_distance: int = 0) -> Tensor:
    """int64 [..., n, C]: place of each bucket's newest key at least `min_distance` before positions [n] (ascending).

    labels [..., T], -1 for a key that does not count. Only the stretch between the first and the last query is spread
    out over buckets.
    """
    last = (positions - min_distance).to(labels.device)  # newest place that may count, [n]
    first, stop = int(last[0]) + 1, int(last[-1]) + 1
    whole = labels.new_full((*labels.shape[:-1], buckets + 1), -1)  # the last column takes what does not count
    if first > 0:
        before = labels[..., :first]
        places = torch.arange(first, device=labels.device).expand_as(before)
        whole.scatter_reduce_(-1, before % (buckets + 1), places, "amax")
    found = whole[..., None, :buckets].expand(*labels.shape[:-1], len(last), buckets)
    if stop > max(0, first):
        begin = max(0, first)
        places = torch.arange(begin, stop, device=labels.device)
        hit = labels[..., begin:stop, None] == torch.arange(buckets, device=labels.device)  # [..., t, C]
        newest = torch.where(hit, places[:, None], -1).cummax(-2).values
        at = (last - begin).clamp(min=0)
        inside = newest[..., at, :].masked_fill((last < begin)[:, None], -1)
        found = torch.maximum(found, inside)
    return found
