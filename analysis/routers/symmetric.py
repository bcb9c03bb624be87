"""Symmetric k-means: a query goes where a key of its direction would lie."""

from torch import Tensor

from analysis.routers.base import Router


class SymmetricKMeans(Router):
    """Scores a bucket by the product of the query with its unit centroid; the query's norm changes no order. The
    training-free baseline of the paper (table 1)."""

    kind = "kmeans"

    def scores(self, queries, positions=None, labels=None, mass=None, min_distance=0) -> Tensor:
        return queries @ self.centroids.to(queries).mT
