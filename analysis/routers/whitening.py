"""Whitening only: queries and keys made round, each by itself."""

import torch.nn.functional as F
from torch import Tensor

from analysis.routers.base import Router
from analysis.routers.moments import power


class Whitening(Router):
    """Independent ZCA whitening, uncentred: q M_q^(-1/2) against the centroids c M_k^(-1/2) on the unit sphere. The
    products of queries and keys are lost; the paper's ablation (section 4.3)."""

    kind = "whitening"
    NAMES = ("of_queries", "of_keys")

    def fit(self, of_queries: Tensor, of_keys: Tensor) -> "Whitening":
        """From the second moments of queries and keys, both [..., D, D] with eps I; returns self."""
        self.of_queries_, self.of_keys_ = power(of_queries, -0.5).float(), power(of_keys, -0.5).float()
        return self

    def scores(self, queries, positions=None, labels=None, mass=None, min_distance=0) -> Tensor:
        turned = F.normalize(self.centroids.to(queries) @ self.fitted("of_keys").to(queries), dim=-1)
        return queries @ self.fitted("of_queries").to(queries) @ turned.mT
