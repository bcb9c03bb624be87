"""Bucket routers: which buckets of keys a query visits (GWR and Saap, with the controls that the papers lack)."""

from torch import Tensor

from ..errors import BadSetting
from .base import Router
from .controls import Chance, Oracle, Recency
from .linear import GWRLinear, GWRLinearIntercept, StaticPrior
from .mlp import LEARNED, SaapMLP
from .moments import Geometric, Moments, SymmetricKMeans, Turned, Whitening, gauge

__all__ = ["EPS", "MEANING", "ROUTERS", "fit_router", "gauge"]

# Added to the diagonal of second moments.
EPS = 1e-4
CLOSED_FORM = (Whitening, Geometric, GWRLinear, GWRLinearIntercept)
ROUTERS: dict[str, type[Router]] = {
    router.kind: router for router in (Chance, StaticPrior, Recency, SymmetricKMeans, *CLOSED_FORM, *LEARNED, Oracle)
}
MEANING = {kind: cls.__doc__ for kind, cls in ROUTERS.items()}


def fit_router(kind: str, queries: Tensor, keys: Tensor, mass: Tensor, centroids: Tensor, seed: int = 0) -> Router:
    """Fit a router of one head, or of several with leading dimensions: queries [..., n, D], keys [..., m, D], mass
    [..., n, C] of the partition with centroids [..., C, D].

    Returns an object with `scores`; the streamed ones (static prior, GWR linear) also take more with
    `partial_fit(queries, mass)`. Errors: BadSetting for an unknown `kind` of ROUTERS, or shapes that do not fit.
    """
    if kind not in ROUTERS:
        raise BadSetting(f"There is no router {str(kind)[:40]!r}; there are: {', '.join(ROUTERS)}.")
    shapes = [list(x.shape) for x in (queries, keys, mass, centroids)]
    if queries.shape[-1] != centroids.shape[-1] or keys.shape[-1] != centroids.shape[-1]:
        raise BadSetting(f"Queries, keys and centroids must have one size of vector, and are {shapes}.")
    if mass.shape[-1] != centroids.shape[-2] or mass.shape[:-1] != queries.shape[:-1]:
        raise BadSetting(f"Masses are one row per query and one column per bucket, and the shapes are {shapes}.")
    router = ROUTERS[kind](centroids, seed)
    if isinstance(router, (GWRLinear, StaticPrior)):
        return router.partial_fit(queries, mass)
    if isinstance(router, SaapMLP):
        return router.fit(queries, mass)
    if isinstance(router, Turned):
        return router.fit(Moments().add(queries).mean(EPS), Moments().add(keys).mean(EPS))
    return router
