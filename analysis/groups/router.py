"""The Focus router: per layer a low-rank projection and K centroids that say which groups a token belongs to.

Source: Focus, section 2 (d_s = 16, K = 8, window 128, temperature 0.1, 10 iterations) and definitions 2.1. One router
per layer, shared by all heads, reads what the attention module reads; or one for each of the `heads` key-value heads
(the paper's has one for all). Then what is of tokens and groups, [..., T, K], is [..., T, heads, K]. Training uses
`soft`, inference `members`.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import fitted
from ..declaration import field, fields_of
from ..errors import BadSetting, NotFitted
from .gates import GATES, gate_logits, top_groups
from .sinkhorn import assign, frozen_potential, prefix_sinkhorn, sinkhorn

TENSORS = {"projection": 3, "centroids": 3, "potential": 2}  # name -> dimensions
KINDS = ("trained", "not trained", "random centroids")
MEMBERSHIPS = ("causal", "prefix", "literal")
# Std of the scores at the start: mean confidence 0.6-0.7 at temperature 0.1.
SCORE_SPREAD = 0.35
# Tokens of 16 bits that are projected at once.
ROWS = 4096


@dataclass(frozen=True)
class RouterSettings:
    """Everything about a router but its numbers. Errors: BadSetting."""

    groups: int = field(8, "number of groups K", low=1)
    top: int = field(1, "groups that a token belongs to", low=1)
    d_s: int = field(16, "dimensions of the routing vectors", low=1)
    temperature: float = field(0.1, "of the assignment to groups", low=1e-9)
    iterations: int = field(10, "of Sinkhorn; 0 leaves the groups unbalanced", low=0)
    window: int = field(128, "recent tokens that are always read", low=1)
    n_sink: int = field(0, "first tokens that are always read", low=0)
    gate: str = field("log", "form of the gate", options=GATES)
    # The paper gives neither; these are half open where a quarter of one membership is shared.
    gate_sharpness: float | None = field(None, "lambda (default: 20 * top)", low=-1e9, high=1e9)
    gate_offset: float | None = field(None, "b (default: 1 / (4 * top))", low=-1e9, high=1e9)
    similarity: str = field("dot", "of a token and a centroid; cosine ignores lengths", options=("dot", "cosine"))
    grouped_layers: list[int] | None = field(None, "places of the layers that have groups (default: all)", low=0)
    heads: int = field(1, "routers of a layer: 1 for all heads, or one for each key-value head", low=1)

    def __post_init__(self) -> None:
        for setting in fields_of(RouterSettings):
            setting.check(getattr(self, setting.name), "a router")
        if self.top > self.groups:
            raise BadSetting(f"A token cannot be in {self.top} of {self.groups} groups; choose 1 to {self.groups}.")
        if self.gate_sharpness is None:
            object.__setattr__(self, "gate_sharpness", 20.0 * self.top)
        if self.gate_offset is None:
            object.__setattr__(self, "gate_offset", 1.0 / (4 * self.top))


class FocusRouter(nn.Module):
    """Router of a model with `layers` layers of width `width`: layers * heads * (width + groups) * d_s parameters.

    projection [L, width, heads d_s] ~ N(0, 1/width); centroids [L, heads K, d_s]; potential [L, heads K], a buffer,
    zero until `fit_potential`. `about`: how it was made (kind, steps, corpus, model, revision, ...), stored with it.
    """

    potential: Tensor

    def __init__(
        self, layers: int, width: int, settings: RouterSettings | None = None, seed: int = 0, **fields: Any
    ) -> None:
        super().__init__()
        self.settings = s = settings or RouterSettings(**fields)
        draw = torch.Generator().manual_seed(seed)
        self.projection = nn.Parameter(torch.randn(layers, width, s.heads * s.d_s, generator=draw) / width**0.5)
        spread, groups = SCORE_SPREAD / s.d_s**0.5, s.heads * s.groups
        self.centroids = nn.Parameter(torch.randn(layers, groups, s.d_s, generator=draw) * spread)
        self.register_buffer("potential", torch.zeros(layers, groups))
        self.about: dict = {"kind": "not trained", "steps": 0, "seed": seed}
        # What `members_of_token` multiplies by, and the numbers that it was made of.
        self._joint: tuple | None = None

    layers = property(lambda self: self.projection.shape[0])
    width = property(lambda self: self.projection.shape[1])
    K = property(lambda self: self.settings.groups)
    top = property(lambda self: self.settings.top)
    temperature = property(lambda self: self.settings.temperature)
    iterations = property(lambda self: self.settings.iterations)
    d_s = property(lambda self: self.settings.d_s)
    window = property(lambda self: self.settings.window)
    n_sink = property(lambda self: self.settings.n_sink)
    heads = property(lambda self: self.settings.heads)
    trained = property(lambda self: self.about.get("kind") == "trained")

    @property
    def grouped(self) -> list[int]:
        """Places of the layers whose tokens are in groups; in the others every token reads everything."""
        chosen = self.settings.grouped_layers
        return list(range(self.layers)) if chosen is None else chosen

    @property
    def size(self) -> int:
        """Number of trained parameters, L (d d_s + K d_s); the potential is fitted, not trained."""
        return sum(p.numel() for p in self.parameters())

    def project(self, layer: int, hidden: Tensor) -> Tensor:
        """Routing vectors of hidden [..., T, width] -> float32 [..., T, heads d_s], also under autocast."""
        if hidden.shape[-1] != self.width:
            raise BadSetting(
                f"The router expects hidden states of width {self.width} and got {hidden.shape[-1]}: fit or train one "
                "for this model."
            )
        with torch.autocast(hidden.device.type, enabled=False):
            projection = self.projection[layer].to(hidden.device)
            # Of one token a product wakes every thread.
            if hidden.shape[:-1].numel() <= 1:
                return (hidden.float().unsqueeze(-1) * projection).sum(-2)
            if hidden.dtype == torch.float32:
                return hidden @ projection
            # No copy of all states in float32: of some tokens at a time.
            return torch.cat([part.float() @ projection for part in hidden.split(ROWS, -2)], -2)

    def scores(self, layer: int, hidden: Tensor) -> Tensor:
        """S = (H W) C^T, not divided by the temperature: hidden [..., T, width] -> float32 [..., T, K]."""
        return self.compared(layer, self.project(layer, hidden))

    def compared(self, layer: int, vectors: Tensor) -> Tensor:
        """The scores of routing vectors [..., T, heads d_s], as `project` gives them -> float32 [..., T, K]."""
        centroids = self.centroids[layer].to(vectors.device)
        if self.heads > 1:
            vectors, centroids = (x.unflatten(at, (self.heads, -1)) for x, at in ((vectors, -1), (centroids, 0)))
        with torch.autocast(vectors.device.type, enabled=False):
            if self.settings.similarity == "cosine":
                vectors, centroids = F.normalize(vectors, dim=-1), F.normalize(centroids, dim=-1)
            if self.heads > 1:
                return torch.einsum("...hd,hkd->...hk", vectors, centroids)
            return vectors @ centroids.T

    def soft(self, layer: int, hidden: Tensor, mask: Tensor | None = None, membership: str = "literal") -> Tensor:
        """Soft assignment [..., T, K] by Sinkhorn: over each sequence (`literal`: reads the future), over the tokens so
        far (`prefix`), or with the balance frozen (`causal`). mask [..., T], True = real token; others become zeros.
        """
        if membership == "causal":
            groups = self.causal(layer, self.project(layer, hidden))
            real = mask if mask is None or self.heads == 1 else mask[..., None]
            return groups if real is None else groups * real.to(groups)[..., None]
        return balanced(self, membership, layer, hidden, mask)

    def members(self, layer: int, hidden: Tensor, top: int | None = None) -> Tensor:
        """Hard membership at inference: the `top` largest groups of the causal assignment, bool [..., T, K]."""
        return top_groups(self.soft(layer, hidden, membership="causal"), top or self.top)

    def of_head(self, head: int) -> "FocusRouter":
        """The router of one key-value head alone."""
        single = FocusRouter(self.layers, self.width, replace(self.settings, heads=1))
        parts = {"projection": self.projection.chunk(self.heads, -1), "centroids": self.centroids.chunk(self.heads, 1)}
        parts |= {"potential": self.potential.chunk(self.heads, 1)}
        single.load_state_dict({name: several[head] for name, several in parts.items()})
        single.about = self.about | {"heads": self.heads}
        return single

    def causal(self, layer: int, vectors: Tensor) -> Tensor:
        """Soft assignment [..., K] of routing vectors [..., heads d_s], the balance frozen."""
        scores = self.compared(layer, vectors)
        return assign(scores, self.temperature, self.potential[layer].view(-1, self.K).to(scores.device))

    @torch.no_grad()
    def members_of_token(self, layer: int, hidden: Tensor, top: int) -> Tensor:
        """`members` of one token, hidden [1, 1, width], by one product with W C^T, which is made once."""
        # A step of generation consists of small calls: this takes a third of theirs. A softmax keeps the order.
        apart = self.heads > 1 or self.settings.similarity == "cosine"
        if apart or torch.is_autocast_enabled(hidden.device.type):
            return self.members(layer, hidden, top)
        numbers = self.projection, self.centroids, self.potential
        made_of = tuple((tensor.untyped_storage()._cdata, tensor._version) for tensor in numbers)
        if self._joint is None or self._joint[0] != made_of:
            projection, centroids, potential = ((x.cpu() if x.device.type == "mps" else x).double() for x in numbers)
            products = centroids @ projection.transpose(1, 2) / self.temperature  # [L, K, width]
            self._joint = made_of, *(tensor.float().unbind() for tensor in (products, potential))
        products, potential = (of_layers[layer].to(hidden.device) for of_layers in self._joint[1:])
        return top_groups(torch.addmv(potential, products, hidden[0, 0].float()), top)[None, None]

    def gate(self, scores: Tensor, affinity: Tensor) -> Tensor:
        """Gated scores of distant pairs in this router's form (`gates.gate_logits`)."""
        s = self.settings
        assert s.gate_sharpness is not None and s.gate_offset is not None, "settings fill them in"
        return gate_logits(scores, affinity, s.gate, s.gate_sharpness, s.gate_offset)

    @torch.no_grad()
    def scale_to(self, hidden: Sequence[Tensor], spread: float = SCORE_SPREAD) -> "FocusRouter":
        """Scale centroids so that scores spread by `spread` around each group's mean, which the potential absorbs, on
        hidden [L][N, width]. Cosine scores have no scale and stay."""
        self.check(len(hidden))
        if self.settings.similarity == "dot":
            for layer, sample in enumerate(hidden):
                self.stretch(layer, spread / score_spread(self.scores(layer, sample)).clamp_min(1e-12))
        return self

    @torch.no_grad()
    def stretch(self, layer: int, times: Tensor) -> None:
        """Multiply the centroids of a layer by a number, [] or of each head [heads]."""
        self.centroids[layer].view(self.heads, self.K, -1).mul_(times.reshape(-1, 1, 1))

    @torch.no_grad()
    def fit_potential(self, hidden: Sequence[Tensor], iterations: int = 50) -> "FocusRouter":
        """Freeze the balance on pooled calibration tokens, hidden [L][N, width]: one long Sinkhorn run per layer. A
        router without Sinkhorn iterations is not balanced (softmax) and keeps its potential."""
        self.check(len(hidden))
        if self.iterations:
            for layer, sample in enumerate(hidden):
                self.balance(layer, sample, iterations)
        return self

    @torch.no_grad()
    def balance(self, layer: int, hidden: Tensor, iterations: int = 50) -> None:
        """Freeze the balance of one layer on pooled tokens, hidden [N, width], that of each head by itself."""
        scores = self.scores(layer, hidden).view(-1, self.heads, self.K).unbind(1)
        parts = [frozen_potential(of_head, self.temperature, iterations) for of_head in scores]
        self.potential[layer] = torch.cat(parts)

    def variant(self, **settings: Any) -> "FocusRouter":
        """A copy with these settings changed (none: a plain copy), its numbers and balance the same."""
        copy = FocusRouter(self.layers, self.width, replace(self.settings, **settings))
        copy.load_state_dict(self.state_dict())
        copy.about = dict(self.about)
        return copy

    def check(self, layers: int, width: int | None = None) -> None:
        """Refuse a model this router does not fit. Errors: BadSetting with both shapes."""
        width = self.width if width is None else width
        if (layers, width) != (self.layers, self.width):
            raise BadSetting(
                f"This router is for {self.layers} layers of width {self.width} and the model has {layers} layers of "
                f"width {width}; fit or train a router for this model."
            )

    def save(self, path: str | Path, **about: Any) -> Path:
        """Write `path`.safetensors and, beside it, a JSON that says how it was made; returns the former's path."""
        self.about = {**self.about, **about}
        if self.about.get("kind") not in KINDS:
            raise BadSetting(f"A router's kind is one of {', '.join(KINDS)}, and it is {self.about.get('kind')!r}.")
        tensors = {name: tensor.float() for name, tensor in self.state_dict().items()}
        return fitted.write(_file(path), tensors, settings=asdict(self.settings), about=self.about)

    @classmethod
    def load(cls, path: str | Path, layers: int | None = None, width: int | None = None) -> "FocusRouter":
        """Read a stored router; `layers` and `width` are the model's, checked when given. Errors: NotFitted when there
        is none, BadSetting when it is damaged or made for another shape of model."""
        path = _file(path)
        if not path.is_file():
            raise NotFitted(f"There is no router {path.stem!r} in {path.parent.name or '.'}; fit or train one.")
        stored = fitted.read(path, settings=lambda note: RouterSettings(**note), about=dict)
        try:
            assert stored is not None
            tensors, settings, about = stored
            assert {name: tensor.dim() for name, tensor in tensors.items()} == TENSORS
            depth, of_width, _ = tensors["projection"].shape
            router = cls(depth, of_width, settings)
            router.load_state_dict(tensors)
        except (AssertionError, RuntimeError):
            raise BadSetting(
                f"The router file {path.name} or its .json is damaged or of another version (this one reads format "
                f"{fitted.FORMAT}); fit or train it again."
            ) from None
        router.about = about
        router.check(router.layers if layers is None else layers, width)
        return router


def balanced(router: FocusRouter, membership: str, layer: int, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
    """Soft assignment [..., T, K], balanced over the sequence, `literal`, or over the tokens so far, `prefix`."""
    balance = sinkhorn if membership == "literal" else prefix_sinkhorn
    scores, about = router.scores(layer, hidden), (router.temperature, router.iterations)
    if router.heads == 1:
        return balance(scores, *about, mask)
    # Every head is balanced by itself.
    mask = None if mask is None else mask[..., None, :]
    return balance(scores.transpose(-3, -2), *about, mask).transpose(-3, -2)


def score_spread(scores: Tensor) -> Tensor:
    """Root mean square of scores [N, K] around each group's mean, []; of [N, heads, K] that of each head."""
    return (scores - scores.mean(0)).square().mean((0, -1)).sqrt()


def _file(path: str | Path) -> Path:
    """`path` with the suffix .safetensors, whether it came with .safetensors, .json or neither."""
    path = Path(path)
    return path if path.suffix == ".safetensors" else path.with_name(path.name.removesuffix(".json") + ".safetensors")
