"""The static prior: the buckets that hold most attention on calibration text, the same for every query."""

from torch import Tensor

from analysis.errors import NotFitted
from analysis.routers.base import Streamed, paired


class StaticPrior(Streamed):
    """Scores a bucket by its mean calibration mass and does not look at the query: what any learned router must beat
    (definitions 2.4; the paper lacks it)."""

    kind = "static_prior"
    NAMES = ("prior",)

    def __init__(self, centroids: Tensor, seed: int = 0):
        super().__init__(centroids, seed)
        self._sum, self._count, self._prior = None, 0, None

    def partial_fit(self, queries: Tensor, mass: Tensor) -> "StaticPrior":
        _, mass = paired(queries, mass)
        self._sum = mass.sum(-2) + (0.0 if self._sum is None else self._sum)  # [..., C]
        self._count = self._count + (mass.sum(-1) > 0).sum(-1, keepdim=True)  # [..., 1]
        return self

    @property
    def prior_(self) -> Tensor:
        """Mean mass of each bucket, float32 [..., C]."""
        if self._prior is not None:
            return self._prior
        if self._sum is None:
            raise NotFitted("The static prior was not fitted: give it calibration queries first.")
        return (self._sum / self._count.clamp(min=1)).float()

    @prior_.setter
    def prior_(self, value: Tensor) -> None:
        self._prior = value

    def scores(self, queries, positions=None, labels=None, mass=None, min_distance=0) -> Tensor:
        return self.prior_.unsqueeze(-2).expand(*queries.shape[:-1], self.buckets)
