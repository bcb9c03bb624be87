"""Bucket routing: near tokens are read, and far ones only where a router says that attention lies."""

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from ..declaration import field
from ..errors import BadSetting, NotFitted
from ..kernels.gathered import gathered_attention, visits_keys
from ..kernels.parts import part
from ..routers.buckets import nearest
from ..routers.rotation import unrotate
from ..routers.routing_state import RoutingState
from ..seam.cache import GrowingCache
from ..seam.calls import MASKED, Attended, Block, Call, CosSin
from ..seam.layers import shape_of
from .base import Method

STEP = "gathered buckets"
# Scores of buckets held at once.
SCORES_BYTES = 64 << 20
KINDS = tuple("gwr_linear gwr_linear_intercept mlp static_prior kmeans whitening gwr_geometric random".split())


@dataclass
class BucketRouting(Method):
    """A query reads the last `window` tokens, the first `n_sink`, and of the rest the keys in the `visited` buckets
    that its head's router scores highest; the softmax over what is read is exact.

    Buckets are spherical k-means of keys without their rotary embedding, made once on calibration text for each key-
    value head. A router scores the buckets from the query alone and never looks at the keys it skips. Routers: GWR
    linear (attention mass by least squares, with or without an intercept), a learned MLP, the static prior (the same
    buckets for every query), symmetric k-means, whitening, GWR geometric, and random buckets as a control. A prompt
    runs as a masked pass, which saves nothing; each token after it gathers only the keys it visits.
    """

    title = "Bucket routing"
    paper = "GWR Linear (the routers), Saap (the use at inference)"
    exported_with = {"router": "gwr_linear"}
    needs = "buckets"
    budgeted = "visited"
    kernels = ("token",)
    takes_sinks = True
    budget_start = 4

    fitted: RoutingState | None = None
    router: str = field("gwr_linear", "the router that chooses the buckets", options=KINDS)
    visited: int = field(4, "buckets that each query visits, of each head", low=1, high=1 << 16)
    window: int = field(64, "tokens that are always read, the token itself included", low=1, high=1 << 20)
    n_sink: int = field(4, "first tokens of the text that are always read", low=0, high=64)

    @classmethod
    def build(cls, state: RoutingState | None = None, /, **settings: Any) -> Self:
        """The method with these buckets, reading densely what they were not fitted for, unless said otherwise."""
        fitted_for = state.settings if state else None
        near = {"window": fitted_for.min_distance, "n_sink": fitted_for.sinks or cls.n_sink} if fitted_for else {}
        visited = {"visited": min(cls.visited, fitted_for.buckets)} if fitted_for else {}
        return cls(fitted=state, **{**visited, **near, **settings})

    @property
    def budget_limits(self) -> tuple[int, int]:
        """From one bucket to all."""
        return 1, self._state.centroids(0).shape[1]

    @property
    def kv_cache(self) -> type[GrowingCache]:
        """One whose steps copy no key."""
        return GrowingCache

    @property
    def extra_vectors(self) -> float:
        """Key and value vectors / 2 that a query reads beside its keys: one weight vector for each bucket."""
        return self._state.centroids(0).shape[1] / 2

    @property
    def _state(self) -> RoutingState:
        if self.fitted is None:
            raise NotFitted("Bucket routing has no buckets yet: fit them with `route` on some text.")
        return self.fitted

    def check(self, lm: Any) -> None:
        state, (layers, heads, kv_heads, dim) = self._state, shape_of(lm)
        state.check(layers, heads, kv_heads, dim)
        if self.router not in state.kinds:
            raise NotFitted(
                f"The router {self.router} was not fitted with these buckets: choose one of "
                f"{', '.join(kind for kind in KINDS if kind in state.kinds)}."
            )
        buckets = state.centroids(0).shape[1]
        if self.visited > buckets:
            raise BadSetting(f"{self.visited} buckets were to be visited, and there are {buckets}: choose fewer.")
        state.to(lm.device)
        self._routers = [state.router(self.router, layer, heads) for layer in range(layers)]

    @torch.no_grad()
    def encode_tokens(self, layer: int, query: Tensor, key: Tensor, past: int, module: Any, tables: CosSin) -> Tensor:
        """[B, T, P + H l]: the bucket of the token's key for each head, and the buckets its queries visit; int16 where
        their numbers fit. Some places at a time: a query's scores are as many as there are buckets."""
        with part("router"):
            tables = tables if self._state.settings.rotated[layer] else None
            query, key = (unrotate(x.detach().float(), module, tables) for x in (query, key))
            centroids, length = self._state.centroids(layer).to(query.device), query.shape[2]
            heads, buckets = query.shape[1], centroids.shape[1]
            small = torch.int16 if buckets <= torch.iinfo(torch.int16).max else torch.int32
            parts, size = [], max(1, SCORES_BYTES // (4 * len(query) * heads * buckets))
            for start in range(0, length, size):
                rows = slice(start, min(start + size, length))
                labels = nearest(key[:, :, rows].repeat_interleave(len(centroids) // key.shape[1], 1), centroids)
                places = torch.arange(past + start, past + rows.stop, device=query.device)
                routed = [self._routers[layer].scores(vectors[:, rows], places) for vectors in query]
                chosen = torch.stack(routed).topk(self.visited, -1).indices  # [B, H, n, l]
                parts.append(torch.cat([labels.transpose(1, 2), chosen.transpose(1, 2).flatten(2)], -1).to(small))
            return torch.cat(parts, 1)

    def mask(self, block: Block) -> Tensor:
        of_queries, of_keys = block.remembered()
        far = visits_keys(*self._split(block.layer, of_keys, of_queries))  # [B, H, n, Tk]
        return far | block.near(self.window, self.n_sink)

    def attend(self, call: Call) -> Attended:
        """A token after a text gathers what it visits; a text itself has no kernel."""
        if call.past == 0 or call.query.shape[2] > 1:
            return Attended(None, MASKED, "A prompt has no kernel: only a token after it gathers its buckets.")
        if call.needs_gradient:
            return Attended(None, MASKED, "Gathering has no gradient.")
        assert call.of_tokens is not None, "encode_tokens gave their buckets"
        read = visits_keys(*self._split(call.layer, call.of_tokens, call.of_tokens[:, -1:]))[:, :, 0]
        read[..., -self.window :] = True
        read[..., : self.n_sink] = True
        out = gathered_attention(*call.states, read, call.scaling, call.sink_logits)
        return Attended(out, STEP, "One token gathers the buckets it visits, its window and the sinks.")

    def _split(self, layer: int, of_keys: Tensor, of_queries: Tensor) -> tuple[Tensor, Tensor]:
        """Buckets of the keys int64 [B, P, Tk], and those that queries visit, bool [B, H, n, C]."""
        parts, buckets, _ = self._state.centroids(layer).shape
        heads = (of_queries.shape[-1] - parts) // self.visited
        chosen = of_queries[..., parts:].unflatten(-1, (heads, self.visited)).transpose(1, 2).long()
        visits = chosen.new_zeros(*chosen.shape[:3], buckets, dtype=torch.bool).scatter_(-1, chosen, True)
        return of_keys[..., :parts].transpose(1, 2).long(), visits
