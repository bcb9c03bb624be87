"""What a bucket router is: scores of every bucket for every query, from which the best l are visited."""

from torch import Tensor

from analysis.errors import BadSetting, NotFitted


class Router:
    """Scores buckets for queries of one head, or of several at once: every tensor may have leading dimensions [...].

    `centroids` [..., C, D] unit rows, the buckets that all routers share. `kind` its name; `reads` which of
    `positions`, `labels` and `mass` its scores need; `NAMES` its fitted tensors, for a file.
    """

    kind: str = ""
    reads: frozenset[str] = frozenset()
    NAMES: tuple[str, ...] = ()

    def __init__(self, centroids: Tensor, seed: int = 0):
        self.centroids, self.seed = centroids, seed

    @property
    def buckets(self) -> int:
        """C."""
        return self.centroids.shape[-2]

    def scores(
        self,
        queries: Tensor,
        positions: Tensor | None = None,
        labels: Tensor | None = None,
        mass: Tensor | None = None,
        min_distance: int = 0,
    ) -> Tensor:
        """queries [..., n, D] -> [..., n, C], larger is better.

        `positions` [n] of the queries and `labels` [..., T], the bucket of each key of this text (-1: none), for
        recency, which looks at keys at least `min_distance` back; `mass` [..., n, C] for the oracle.
        """
        raise NotImplementedError

    def tensors(self) -> dict[str, Tensor]:
        """The fitted tensors by name."""
        return {name: getattr(self, f"{name}_") for name in self.NAMES}

    def restore(self, tensors: dict[str, Tensor]) -> "Router":
        """Take fitted tensors over; returns self."""
        for name in self.NAMES:
            setattr(self, f"{name}_", tensors[name])
        return self

    def fitted(self, name: str) -> Tensor:
        """A fitted tensor. Errors: NotFitted."""
        value = getattr(self, f"{name}_", None)
        if value is None:
            raise NotFitted(f"The router {self.kind} was not fitted: give it calibration queries first.")
        return value


class Streamed(Router):
    """A router that learns from pairs of queries and masses as they come and keeps sums only: memory independent of
    the number of queries."""

    def partial_fit(self, queries: Tensor, mass: Tensor) -> "Streamed":
        """Add queries [..., n, D] with their masses [..., n, C]; a query without any mass counts for nothing."""
        raise NotImplementedError


def paired(queries: Tensor, mass: Tensor) -> tuple[Tensor, Tensor]:
    """Both in float64, queries without any mass set to 0; and refused when they do not belong together."""
    if queries.shape[:-1] != mass.shape[:-1]:
        raise BadSetting(f"Queries {list(queries.shape)} and masses {list(mass.shape)} are not paired row by row.")
    queries, mass = queries.double(), mass.double()
    return queries * (mass.sum(-1, keepdim=True) > 0), mass
