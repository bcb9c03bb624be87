"""Routers that compare a query with the centroids of keys: as they are, or made alike by second moments first."""

from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from .base import RoutedText, Router

# An eigenvalue below this share of the largest counts as it.
SMALLEST = 1e-12


class Moments:
    """Uncentred second moments E[x^T x] of rows that come in pieces: a sum [..., D, D] in float64, and a count."""

    sum: Tensor | float = 0.0
    count = 0

    def add(self, rows: Tensor) -> "Moments":
        """Add rows [..., n, D]."""
        rows = rows.double()
        self.sum = self.sum + rows.mT @ rows
        self.count += rows.shape[-2]
        return self

    def mean(self, eps: float = 0.0) -> Tensor:
        """E[x^T x] + eps I, float64 [..., D, D]."""
        mean = torch.as_tensor(self.sum) / max(1, self.count)
        return mean + eps * torch.eye(mean.shape[-1], dtype=torch.float64, device=mean.device)


def power(matrix: Tensor, exponent: float) -> Tensor:
    """A symmetric positive matrix [..., D, D] to any power, by its eigenvalues in float64."""
    values, vectors = torch.linalg.eigh((matrix + matrix.mT) / 2)
    # Rounding leaves eigenvalues at or below 0, of which a root would be none.
    values = torch.maximum(values, values[..., -1:] * SMALLEST)
    result = (vectors * values.pow(exponent).unsqueeze(-2)) @ vectors.mT
    return (result + result.mT) / 2


def gauge(queries: Tensor, keys: Tensor, eps: float = 1e-4) -> tuple[Tensor, Tensor]:
    """(S, R), float64 [..., D, D]: S is symmetric and positive with S M_q S = M_k, and R its square root, so that q R
    and k R^-T have all products of q and k and equal second moments (GWR, section 3.2). M_q and M_k are the second
    moments of queries [..., n, D] and keys [..., m, D] plus eps I."""
    return gauge_of(Moments().add(queries).mean(eps), Moments().add(keys).mean(eps))


def gauge_of(of_queries: Tensor, of_keys: Tensor) -> tuple[Tensor, Tensor]:
    """`gauge` from the second moments themselves, [..., D, D] with eps I."""
    root = power(of_keys, 0.5)
    # The one symmetric positive S with S M_q S = M_k.
    solution = root @ power(root @ of_queries @ root, -0.5) @ root
    return (solution + solution.mT) / 2, power(solution, 0.5)


class SymmetricKMeans(Router):
    """Scores a bucket by the product of the query with its unit centroid; the query's norm changes no order. The
    training-free baseline of the paper (table 1)."""

    kind = "kmeans"

    def _scores(self, queries: Tensor, text: RoutedText) -> Tensor:
        return queries @ self.centroids.to(queries).mT


class Turned(Router):
    """Queries and keys are multiplied by a matrix each. `fit` makes both from the second moments of queries and keys,
    [..., D, D] with eps I."""

    NAMES = ("of_queries", "of_keys")

    def fit(self, of_queries: Tensor, of_keys: Tensor) -> Self:
        """Make the matrices from the second moments; returns self."""
        matrices = (matrix.float() for matrix in self._matrices(of_queries, of_keys))
        return self.restore(dict(zip(self.NAMES, matrices, strict=True)))

    def _matrices(self, of_queries: Tensor, of_keys: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def _scores(self, queries: Tensor, text: RoutedText) -> Tensor:
        turned = F.normalize(self.centroids.to(queries) @ self.fitted("of_keys").to(queries), dim=-1)
        return queries @ self.fitted("of_queries").to(queries) @ turned.mT


class Whitening(Turned):
    """Independent ZCA whitening, uncentred: q M_q^(-1/2) against the centroids c M_k^(-1/2) on the unit sphere. The
    products of queries and keys are lost; the paper's ablation (section 4.3)."""

    kind = "whitening"

    def _matrices(self, of_queries: Tensor, of_keys: Tensor) -> tuple[Tensor, Tensor]:
        return power(of_queries, -0.5), power(of_keys, -0.5)


class Geometric(Turned):
    """q R against the centroids c R^-T on the unit sphere (which breaks the products again, for the routing alone). In
    the paper no better than symmetric k-means (table 1)."""

    kind = "gwr_geometric"

    def _matrices(self, of_queries: Tensor, of_keys: Tensor) -> tuple[Tensor, Tensor]:
        _, turn = gauge_of(of_queries, of_keys)
        return turn, torch.linalg.inv(turn).mT
