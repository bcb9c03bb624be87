"""GWR linear: attention mass per bucket predicted from the query by least squares, in closed form."""

import torch
from torch import Tensor

from analysis.errors import NotFitted
from analysis.routers.base import Streamed, paired

EPS = 1e-4  # of the ridge, in multiples of trace(Q^T Q) / D


class GWRLinear(Streamed):
    """y = q W with W = (Q^T Q + eps I)^-1 Q^T Y, equation 5 of the paper.

    Only Q^T Q and Q^T Y are kept, in float64, and solved by Cholesky; eps is relative to trace(Q^T Q) / D, so that it
    means the same for heads with large and with small queries. `intercept` adds a constant to each bucket, which is
    not shrunk: with it the static prior need not be expressed by the queries.
    """

    kind = "gwr_linear"
    NAMES = ("weights",)
    intercept = False

    def __init__(self, centroids: Tensor, seed: int = 0, eps: float = EPS):
        super().__init__(centroids, seed)
        self.eps = eps
        self._gram = self._cross = self._weights = None

    def partial_fit(self, queries: Tensor, mass: Tensor) -> "GWRLinear":
        if self.intercept:
            queries = torch.cat([queries, torch.ones_like(queries[..., :1])], -1)
        queries, mass = paired(queries, mass)
        gram, cross = queries.mT @ queries, queries.mT @ mass  # [..., D, D], [..., D, C]
        self._gram = gram if self._gram is None else self._gram.add_(gram)
        self._cross = cross if self._cross is None else self._cross.add_(cross)
        self._weights = None
        return self

    @property
    def weights_(self) -> Tensor:
        """W, float32 [..., D, C], with one more row for the intercept."""
        if self._weights is None:
            if self._gram is None:
                raise NotFitted("GWR linear was not fitted: give it calibration queries first.")
            self._weights = self.solve().float()
        return self._weights

    @weights_.setter
    def weights_(self, value: Tensor) -> None:
        self._weights = value

    def solve(self) -> Tensor:
        """W in float64. A head whose queries are all zero gets zeros."""
        size = self._gram.shape[-1]
        shrunk = torch.ones(size, dtype=torch.float64, device=self._gram.device)
        if self.intercept:
            shrunk[-1] = 0.0
        trace = (self._gram.diagonal(dim1=-2, dim2=-1) * shrunk).sum(-1) / shrunk.sum()  # [...]
        ridge = (self.eps * trace).clamp(min=torch.finfo(torch.float64).tiny)
        matrix = self._gram + torch.diag_embed(ridge.unsqueeze(-1) * shrunk)
        if self.intercept:
            matrix[..., -1, -1] = matrix[..., -1, -1].clamp(min=1.0)
        return torch.cholesky_solve(self._cross, torch.linalg.cholesky(matrix))

    def scores(self, queries, positions=None, labels=None, mass=None, min_distance=0) -> Tensor:
        weights = self.weights_.to(queries)
        if not self.intercept:
            return queries @ weights
        return queries @ weights[..., :-1, :] + weights[..., -1:, :]


class GWRLinearIntercept(GWRLinear):
    """GWR linear with an intercept: the ablation that tells the prior from what the query says."""

    kind = "gwr_linear_intercept"
    intercept = True
