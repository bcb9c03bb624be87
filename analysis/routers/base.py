"""What a bucket router is: scores of every bucket for every query, from which the best l are visited."""

from typing import NamedTuple, Self

from torch import Tensor

from ..errors import BadSetting, NotFitted


class RoutedText(NamedTuple):
    """What a router may look at beside the queries; see `Router.scores`."""

    positions: Tensor | None
    labels: Tensor | None
    mass: Tensor | None
    min_distance: int


class Router:
    """Scores buckets for queries of one head, or of several at once: every tensor may have leading dimensions [...].

    `centroids` [..., C, D] unit rows, the buckets that all routers share. `kind` its name; `reads` which of
    `positions`, `labels` and `mass` its scores need; `NAMES` its fitted tensors, for a file: `prior` is `self.prior_`.
    """

    kind: str = ""
    reads: frozenset[str] = frozenset()
    NAMES: tuple[str, ...] = ()

    def __init__(self, centroids: Tensor, seed: int = 0) -> None:
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
        text = RoutedText(positions, labels, mass, min_distance)
        if missing := [name for name in sorted(self.reads) if getattr(text, name) is None]:
            raise BadSetting(f"The router {self.kind} needs the {' and '.join(missing)} of the text.")
        return self._scores(queries, text)

    def _scores(self, queries: Tensor, text: RoutedText) -> Tensor:
        raise NotImplementedError

    def tensors(self) -> dict[str, Tensor]:
        """The fitted tensors by name. Errors: NotFitted."""
        return {name: self.fitted(name) for name in self.NAMES}

    def restore(self, tensors: dict[str, Tensor]) -> Self:
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
