"""Routing Transformer: a token reads what lies in the same cluster, clusters being means of normalised vectors."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..declaration import field
from ..errors import BadSetting, NotFitted
from ..fitted import Fitted, check_shapes
from ..groups.kmeans import spherical_kmeans
from ..routers.rotation import unrotate
from ..seam.attention import apply
from ..seam.calls import Block, CosSin
from ..seam.layers import shape_of
from ..statistics import forward
from .base import Method

# Vectors of a head that its centroids are made of.
MOST = 16384


@dataclass
class RoutingTransformer(Method):
    """A query reads the last `window` tokens, the first `n_sink`, and farther back the keys whose nearest centroid is
    also its own. Every key-value head has its own centroids: means of normalised queries and keys.

    The original trains from scratch, uses one vector as query and key, moves its centroids along, and gives each
    cluster the most similar tokens of the whole text, equally many for each: a later token can push an earlier one out,
    so the future leaks in. A model trained dense keeps separate queries and keys; here its centroids are k-means of a
    calibration text and stay fixed. *Causal* membership decides for each token by itself. *Literal* membership is the
    original's choice over the whole text: it is here to measure the leak, never to be used. `rotary` says whether
    vectors are clustered with their rotary embedding or without it. The softmax over what it reads is exact.
    """

    title = "Routing Transformer"
    paper = "Roy et al., 2020 (Routing Transformer), section 4"
    needs = "calibration"
    budgeted = "window"

    fitted: Fitted | None = None
    window: int = field(64, "tokens that are always read, the token itself included", low=1, high=1 << 20)
    n_sink: int = field(4, "first tokens of the text that are always read", low=0, high=64)
    rotary: str = field("kept", "whether vectors are clustered with their rotary embedding", options=("kept", "undone"))
    membership: str = field(
        "causal",
        "each token by itself, or the best of the whole text",
        options=("causal", "literal"),
        future=("literal",),
    )
    # What `fit` makes of each key-value head; with what was fitted, how many there are.
    clusters: int = 16
    seed: int = 0  # of `fit`

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fitted is not None:
            self.clusters = self.fitted["kept"].shape[2]

    @property
    def extra_vectors(self) -> float:
        """Key and value vectors / 2 that a query reads beside its keys: one for each centroid."""
        return self.clusters / 2

    def fit(self, model: Any, windows: Tensor) -> "RoutingTransformer":
        """Centroids [L, G, C, D] of queries and keys together, with their rotation (`kept`) and without (`undone`)."""
        watch = _Seen()
        with apply(model, watch):
            for window in windows:
                forward(model, window.cpu().numpy())
        means = {}
        for name in ("kept", "undone"):
            layers = [watch.vectors[layer, name] for layer in range(model.num_layers)]
            means[name] = torch.stack([self._means(torch.cat(rows, 1)) for rows in layers])
        self.fitted = Fitted("routing_transformer", means)
        return self

    def _means(self, vectors: Tensor) -> Tensor:
        """Unit centroids [G, C, D] of normalised vectors [G, m, D]."""
        few = vectors[:, :: max(1, -(-vectors.shape[1] // MOST))]
        return torch.stack([spherical_kmeans(head, self.clusters, self.seed)[0] for head in few])

    def check(self, lm: Any) -> None:
        if self.fitted is None:
            raise NotFitted("Routing Transformer has no centroids yet: calibrate it with `fit-method` on some text.")
        layers, _, parts, dim = shape_of(lm)
        parts = 1 if self.fitted["kept"].shape[1:2] == (1,) else parts  # the same for all heads
        check_shapes(self.fitted, dict.fromkeys(("kept", "undone"), (layers, parts, None, dim)))
        self.fitted.to(lm.device)

    def token_features(self, layer: int, hidden: Tensor, not_padding: Tensor | None) -> None:
        """Notes which tokens are no padding: in literal membership it takes no place."""
        self.real_ = not_padding

    def encode_tokens(self, layer: int, query: Tensor, key: Tensor, past: int, module: Any, tables: CosSin) -> Tensor:
        """bool [B, T, H + G, C]: the clusters of each token's queries and keys."""
        if self.membership == "literal" and self.real_ is None:
            raise BadSetting(
                "Literal membership chooses from the whole text, so it cannot decode token by token: use causal "
                "membership, or generate without the KV cache."
            )
        if self.rotary == "undone":
            query, key = (unrotate(x.detach().float(), module, tables) for x in (query, key))
        assert self.fitted is not None, "check refuses a method without centroids"
        centroids = self.fitted[self.rotary][layer].to(query.device)
        return torch.cat([self._members(x, centroids) for x in (query, key)], 1).transpose(1, 2)

    def _members(self, x: Tensor, centroids: Tensor) -> Tensor:
        """bool [B, heads, T, C] of vectors [B, heads, T, D]."""
        centroids = centroids.repeat_interleave(x.shape[1] // len(centroids), 0)
        similar = normalised(x) @ centroids.mT  # [B, heads, T, C]
        if self.membership == "causal":
            return similar.argmax(-1, keepdim=True) == torch.arange(similar.shape[-1], device=similar.device)
        assert self.real_ is not None, "literal membership sees a whole text"
        # as many tokens for each cluster
        size = -(-similar.shape[2] // similar.shape[-1])
        similar = similar.masked_fill(~self.real_[:, None, :, None], -torch.inf)
        best = similar.topk(size, dim=2).indices
        return torch.zeros_like(similar, dtype=torch.bool).scatter_(2, best, True)

    def mask(self, block: Block) -> Tensor:
        query, key = block.queries_and_keys()  # [B, H, n, C], [B, G, Tk, C]
        shared = (query.unflatten(1, (key.shape[1], -1)) @ key.mT[:, :, None]).flatten(1, 2) > 0.5  # [B, H, n, Tk]
        return shared | block.near(self.window, self.n_sink)


def normalised(x: Tensor) -> Tensor:
    """Layer normalisation without scale and bias, in float32: vectors [..., D] of mean 0 and equal length."""
    return F.layer_norm(x.detach().float(), x.shape[-1:], eps=1e-6)


@dataclass
class _Seen(Method):
    """Dense attention that keeps each layer's normalised queries and keys [G, m, D], as they meet and un-rotated."""

    dense = True

    def __post_init__(self) -> None:
        self.vectors: dict[tuple[int, str], list[Tensor]] = {}

    def encode_tokens(self, layer: int, query: Tensor, key: Tensor, past: int, module: Any, tables: CosSin) -> None:
        for name, rotation in (("kept", None), ("undone", tables)):
            q, k = (normalised(unrotate(x.detach().float(), module, rotation)[0]) for x in (query, key))
            both = torch.cat([q.unflatten(0, (len(k), -1)).flatten(1, 2), k], 1)  # [G, m, D]
            self.vectors.setdefault((layer, name), []).append(both.cpu())
