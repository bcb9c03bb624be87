"""Buckets of keys: spherical k-means per key-value head, how even they are, and the attention mass in each."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import BadSetting
from ..groups.kmeans import spherical_kmeans

# Tokens of a text for each bucket: C = T / 32.
PER_BUCKET = 32
# Keys per bucket that k-means looks at.
SAMPLE = 256


def buckets_for(tokens: int) -> int:
    """C for texts of `tokens` tokens (definitions 2.4)."""
    return max(2, tokens // PER_BUCKET)


@torch.no_grad()
def make_buckets(keys: Tensor, buckets: int, seed: int = 0, iterations: int = 25) -> Tensor:
    """Centroids [P, C, D], unit rows, of calibration keys [P, m, D], at most 256 per bucket, each head by itself; none
    is empty there. Errors: BadSetting for fewer keys than buckets."""
    if not 2 <= buckets <= keys.shape[1]:
        raise BadSetting(
            f"{buckets:,} buckets were asked for and there are {keys.shape[1]:,} calibration keys per head: choose 2 "
            f"to {keys.shape[1]:,} buckets, or give more text."
        )
    limit = SAMPLE * buckets
    if keys.shape[1] > limit:
        keys = keys[:, torch.randperm(keys.shape[1], generator=torch.Generator().manual_seed(seed))[:limit]]
    return torch.stack([spherical_kmeans(head, buckets, seed, iterations)[0] for head in keys.float()])


def nearest(keys: Tensor, centroids: Tensor) -> Tensor:
    """Bucket int64 [P, T] of each key [P, T, D]: the centroid [P, C, D] of largest product."""
    return (keys @ centroids.to(keys).mT).argmax(-1)


def evenness(counts: Tensor) -> dict[str, float]:
    """How even buckets are, from the keys in each, [C]: `largest` share of one, `empty` share without any, and
    `effective`, the number of equal buckets with the same entropy, as a share of C."""
    shares = counts.double() / counts.sum().clamp(min=1)
    entropy = -torch.special.xlogy(shares, shares).sum()
    return {
        "largest": float(shares.max()),
        "empty": float((counts == 0).double().mean()),
        "effective": float(entropy.exp() / len(counts)),
    }


def members(labels: Tensor, buckets: int) -> Tensor:
    """Which key is in which bucket: labels [P, T] -> float32 0 or 1, [P, T, C]."""
    return F.one_hot(labels, buckets).float()


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

    # Keys that are far enough for every query of the block.
    settled, done = torch.zeros_like(body[0]), sinks
    # From the largest distance down: keys that are far enough for it are so for all smaller ones.
    for index in reversed(range(len(distances))):
        edge = min(max(sinks, first - distances[index] + 1), total)
        if edge > done:
            add(settled, shared[..., done:edge], done, edge)
            done = edge
        body[index] = settled
        stop = min(first + count - distances[index], total)
        # Keys that are far enough for some.
        if stop > edge:
            far = rows[:, None] - torch.arange(edge, stop, device=rows.device) >= distances[index]
            part = (weights[..., edge:stop] * far).view(parts, -1, stop - edge)
            add(body[index], part, edge, stop)
        if sinks:
            begin = min(sinks, total)
            far = rows[:, None] - torch.arange(begin, device=rows.device) >= distances[index]
            add(sink[index], (weights[..., :begin] * far).view(parts, -1, begin), 0, begin)
    return body, sink
