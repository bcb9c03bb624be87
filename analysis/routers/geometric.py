"""GWR geometric: queries and keys get the same second moments, and every product of the two stays."""

import torch
import torch.nn.functional as F
from torch import Tensor

from analysis.routers.base import Router
from analysis.routers.moments import Moments, power


def gauge(queries: Tensor, keys: Tensor, eps: float = 1e-4) -> tuple[Tensor, Tensor]:
    """(S, R), float64 [..., D, D]: S is symmetric and positive with S M_q S = M_k, and R its square root.

    M_q and M_k are the second moments of queries [..., n, D] and keys [..., m, D] plus eps I. q R and k R^-T have all
    products of q and k and equal second moments (GWR, section 3.2).
    """
    return gauge_of(Moments().add(queries).mean(eps), Moments().add(keys).mean(eps))


def gauge_of(of_queries: Tensor, of_keys: Tensor) -> tuple[Tensor, Tensor]:
    """`gauge` from the second moments themselves, [..., D, D] with eps I."""
    root = power(of_keys, 0.5)
    solution = root @ power(root @ of_queries @ root, -0.5) @ root
    return (solution + solution.mT) / 2, power(solution, 0.5)


class Geometric(Router):
    """q R against the centroids c R^-T on the unit sphere (which breaks the products again, for the routing alone). In
    the paper no better than symmetric k-means (table 1)."""

    kind = "gwr_geometric"
    NAMES = ("of_queries", "of_keys")

    def fit(self, of_queries: Tensor, of_keys: Tensor) -> "Geometric":
        """From the second moments of queries and keys, both [..., D, D] with eps I; returns self."""
        _, turn = gauge_of(of_queries, of_keys)
        self.of_queries_, self.of_keys_ = turn.float(), torch.linalg.inv(turn).mT.float()
        return self

    def scores(self, queries, positions=None, labels=None, mass=None, min_distance=0) -> Tensor:
        turned = F.normalize(self.centroids.to(queries) @ self.fitted("of_keys").to(queries), dim=-1)
        return queries @ self.fitted("of_queries").to(queries) @ turned.mT
