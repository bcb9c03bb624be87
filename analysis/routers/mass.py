"""Attention mass per bucket, block by block of queries: nothing of size T x T is made."""

import torch
from torch import Tensor


def members(labels: Tensor, buckets: int) -> Tensor:
    """Which key is in which bucket: labels [P, T] -> float32 0 or 1, [P, T, C]."""
    return torch.nn.functional.one_hot(labels, buckets).float()


def bucket_sums(
    weights: Tensor, member: Tensor, rows: Tensor, distances: tuple[int, ...], sinks: int = 0
) -> tuple[Tensor, Tensor]:
    """Sums of weights [H, n, Tk] over the keys of each bucket that are at least a distance before their query.

    `member` [P, T, C] with H a multiple of P (query heads that share keys lie together), `rows` [n] consecutive places
    of the queries, `distances` ascending, all at least 1. Returns (body, sink), float32 [len(distances), H, n, C]: the
    keys from place `sinks` on, and those before it.
    """
    heads, count, total = weights.shape
    parts, first = member.shape[0], int(rows[0])
    shared = weights.view(parts, heads // parts * count, total)
    body = weights.new_zeros(len(distances), heads, count, member.shape[-1])
    sink = torch.zeros_like(body)

    def add(target: Tensor, values: Tensor, begin: int, stop: int) -> None:
        target += (values @ member[:, begin:stop]).view_as(target)

    whole, done = torch.zeros_like(body[0]), sinks  # keys that are far enough for every query of the block
    for at in reversed(range(len(distances))):
        edge = min(max(sinks, first - distances[at] + 1), total)
        if edge > done:
            add(whole, shared[..., done:edge], done, edge)
            done = edge
        body[at] = whole
        stop = min(first + count - distances[at], total)
        if stop > edge:  # keys that are far enough for some
            far = rows[:, None] - torch.arange(edge, stop, device=rows.device) >= distances[at]
            part = (weights[..., edge:stop] * far).view(parts, -1, stop - edge)
            add(body[at], part, edge, stop)
        if sinks:
            begin = min(sinks, total)
            far = rows[:, None] - torch.arange(begin, device=rows.device) >= distances[at]
            add(sink[at], (weights[..., :begin] * far).view(parts, -1, begin), 0, begin)
    return body, sink
