"""Spherical k-means: unit vectors grouped by their cosine, with no empty bucket. Deterministic for a seed on a CPU."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import BadSetting

BLOCK = 1 << 24  # similarities held at once


@torch.no_grad()
def spherical_kmeans(x: Tensor, buckets: int, seed: int = 0, iterations: int = 25) -> tuple[Tensor, Tensor]:
    """Centroids [C, D] (float32 unit rows) and labels [n] (int64) of x [n, D]; every bucket has at least one row.

    Starts by k-means++ on the cosine distance, stops early when no label moves. A bucket that runs empty is restarted
    at the row that its own centroid fits worst. Errors: BadSetting for too few rows, or infinite ones.
    """
    if x.dim() != 2 or not 1 <= buckets <= len(x):
        raise BadSetting(f"k-means takes [n, D], at least as many rows as buckets; got {list(x.shape)} for {buckets}.")
    if not bool(x.isfinite().all()):
        raise BadSetting("Some vectors for k-means are not finite numbers; check the model's precision (try float32).")
    x = F.normalize(x.float(), dim=-1)
    # k-means++: a row's odds to be drawn next are its distance 1 - cos to the nearest centroid so far.
    draws = torch.rand(buckets, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    away = torch.ones(len(x), dtype=torch.float64, device=x.device)
    chosen = []
    for draw in draws.tolist():
        steps = away.cumsum(0)
        row = torch.searchsorted(steps, steps[-1:] * draw, right=True).clamp_max(len(x) - 1)  # [1]
        chosen.append(row)
        away = torch.minimum(away, (1 - (x @ x[row[0]])).clamp_min(0).double())
    centroids, labels = F.normalize(x[torch.cat(chosen)], dim=-1), x.new_empty(0)
    for _ in range(iterations):
        before, labels = labels, _assigned(x, centroids)
        if torch.equal(before, labels):
            break
        sums = torch.zeros_like(centroids).index_add_(0, labels, x)
        length = sums.norm(dim=-1, keepdim=True)
        # Opposite vectors that sum to nothing leave their centroid where it was.
        centroids = torch.where(length > 1e-6, sums / length.clamp_min(1e-6), centroids)
    return centroids, _assigned(x, centroids)


def _assigned(x: Tensor, centroids: Tensor) -> Tensor:
    """Label [n] of the nearest centroid, in blocks of rows. An empty bucket gets the worst-fitting row of a bucket that
    can spare one, and its centroid moves there."""
    best = [(block @ centroids.T).max(-1) for block in x.split(max(1, BLOCK // len(centroids)))]
    labels, fit = torch.cat([block.indices for block in best]), torch.cat([block.values for block in best])
    sizes = torch.bincount(labels, minlength=len(centroids))
    for bucket in (sizes == 0).nonzero()[:, 0].tolist():
        row = int(torch.where(sizes[labels] > 1, fit, torch.inf).argmin())
        sizes[labels[row]] -= 1
        sizes[bucket] += 1
        labels[row] = bucket
        fit[row] = 1.0
        # A row of zeros has no direction.
        if bool(x[row].any()):
            centroids[bucket] = x[row]
    return labels
