"""Routers that learn from pairs of queries and masses as they come and keep sums only: the static prior, and attention
mass per bucket predicted from the query by least squares, in closed form."""

from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from ..errors import BadSetting, NotFitted
from .base import RoutedText, Router

# Of the ridge, in multiples of trace(Q^T Q) / D.
EPS = 1e-4


class GWRLinear(Router):
    """y = q W with W = (Q^T Q + eps I)^-1 Q^T Y, equation 5 of the paper.

    Only Q^T Q and Q^T Y are kept, in float64, and solved by Cholesky; eps is relative to trace(Q^T Q) / D, so that it
    means the same for heads with large and with small queries. `intercept` adds a constant to each bucket, which is
    not shrunk: with it the static prior need not be expressed by the queries.
    """

    kind = "gwr_linear"
    NAMES = ("weights",)
    intercept = False

    def __init__(self, centroids: Tensor, seed: int = 0, eps: float = EPS) -> None:
        super().__init__(centroids, seed)
        self.eps = eps
        # Q^T Q [..., D, D] and Q^T Y [..., D, C].
        self._sums: tuple[Tensor, Tensor] | None = None

    def partial_fit(self, queries: Tensor, mass: Tensor) -> Self:
        """Add queries [..., n, D] with their masses [..., n, C]; a query without any mass counts for nothing."""
        if self.intercept:
            queries = torch.cat([queries, torch.ones_like(queries[..., :1])], -1)
        queries, mass = paired(queries, mass)
        gram, cross = queries.mT @ queries, queries.mT @ mass
        if self._sums is None:
            self._sums = gram, cross
        else:
            # In place: the sums of all heads are the largest tensors here.
            self._sums[0].add_(gram)
            self._sums[1].add_(cross)
        self.__dict__.pop("weights_", None)
        return self

    @cached_property
    def weights_(self) -> Tensor:
        """W, float32 [..., D, C], with one more row for the intercept."""
        return self.solve().float()

    def solve(self) -> Tensor:
        """W in float64. A head whose queries are all zero gets zeros. Errors: NotFitted."""
        if self._sums is None:
            raise NotFitted(f"The router {self.kind} was not fitted: give it calibration queries first.")
        gram, cross = self._sums
        shrunk = torch.ones(gram.shape[-1], dtype=torch.float64, device=gram.device)
        if self.intercept:
            shrunk[-1] = 0.0
        trace = (gram.diagonal(dim1=-2, dim2=-1) * shrunk).sum(-1) / shrunk.sum()  # [...]
        # A ridge of 0 would leave a head without queries singular.
        ridge = (self.eps * trace).clamp(min=torch.finfo(torch.float64).tiny)
        matrix = gram + torch.diag_embed(ridge.unsqueeze(-1) * shrunk)
        # Without any query the intercept has no ones to count.
        if self.intercept:
            matrix[..., -1, -1] = matrix[..., -1, -1].clamp(min=1.0)
        return torch.cholesky_solve(cross, torch.linalg.cholesky(matrix))

    def _scores(self, queries: Tensor, text: RoutedText) -> Tensor:
        weights = self.weights_.to(queries)
        if not self.intercept:
            return queries @ weights
        return queries @ weights[..., :-1, :] + weights[..., -1:, :]


class GWRLinearIntercept(GWRLinear):
    """GWR linear with an intercept: the ablation that tells the prior from what the query says."""

    kind = "gwr_linear_intercept"
    intercept = True


class StaticPrior(Router):
    """Scores a bucket by its mean calibration mass and does not look at the query: what any learned router must beat
    (definitions 2.4; the paper lacks it)."""

    kind = "static_prior"
    NAMES = ("prior",)

    def __init__(self, centroids: Tensor, seed: int = 0) -> None:
        super().__init__(centroids, seed)
        self._sum: Tensor | float = 0.0
        self._count: Tensor | int = 0
        self.prior_: Tensor | None = None

    def partial_fit(self, queries: Tensor, mass: Tensor) -> Self:
        """Add masses [..., n, C] of queries; the prior is their mean, float32 [..., C]."""
        _, mass = paired(queries, mass)
        self._sum = mass.sum(-2) + self._sum
        self._count = self._count + (mass.sum(-1) > 0).sum(-1, keepdim=True)  # [..., 1]
        self.prior_ = (self._sum / self._count.clamp(min=1)).float()
        return self

    def _scores(self, queries: Tensor, text: RoutedText) -> Tensor:
        return self.fitted("prior").unsqueeze(-2).expand(*queries.shape[:-1], self.buckets)


def paired(queries: Tensor, mass: Tensor) -> tuple[Tensor, Tensor]:
    """Both in float64, queries without any mass set to 0; and refused when they do not belong together."""
    if queries.shape[:-1] != mass.shape[:-1]:
        raise BadSetting(f"Queries {list(queries.shape)} and masses {list(mass.shape)} are not paired row by row.")
    queries, mass = queries.double(), mass.double()
    return queries * (mass.sum(-1, keepdim=True) > 0), mass
