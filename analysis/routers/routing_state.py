"""What was fitted for bucket routing on a model: buckets and routers of all heads, in one file and a note beside it."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import fitted
from ..errors import BadSetting, NotFitted
from . import ROUTERS
from .base import Router
from .mlp import LEARNED

# Of a model's fitted state.
FOLDER = "routing"
# Weights in 16 bits, rounded so before they were measured.
HALF = tuple(f"{kind.kind}." for kind in LEARNED)


@dataclass(frozen=True)
class RoutingSettings:
    """What the routers were fitted for: keys at least `min_distance` back, the first `sinks` keys left out, in windows
    of `length` tokens; `rotated` which layers rotate queries and keys."""

    buckets: int
    min_distance: int
    sinks: int
    length: int
    seed: int
    rotated: list[bool]

    @property
    def name(self) -> str:
        """The name of the file, such as c64-d64-s4."""
        return f"c{self.buckets}-d{self.min_distance}-s{self.sinks}"


@dataclass
class RoutingState:
    """Buckets and fitted routers of every layer. `tensors`: `centroids` [L, P, C, D], P the key-value heads or the
    query heads, and `KIND.NAME` [L, H, ...]; `about` how they were made."""

    settings: RoutingSettings
    tensors: dict[str, Tensor]
    about: dict

    @property
    def kinds(self) -> list[str]:
        """The routers that can be used with it."""
        return [kind for kind, cls in ROUTERS.items() if all(f"{kind}.{name}" in self.tensors for name in cls.NAMES)]

    def centroids(self, layer: int) -> Tensor:
        """[P, C, D] of a layer."""
        return self.tensors["centroids"][layer]

    def router(self, kind: str, layer: int, heads: int) -> Router:
        """A router of all `heads` query heads of a layer. Errors: NotFitted."""
        if kind not in self.kinds:
            raise NotFitted(f"There is no fitted router {kind[:40]!r}, only {', '.join(self.kinds)}: fit them anew.")
        of_keys = self.centroids(layer)
        router = ROUTERS[kind](of_keys.repeat_interleave(heads // len(of_keys), 0), self.settings.seed + layer)
        # Fitted tensors of all layers lie in one; a layer takes its own.
        return router.restore({name: self.tensors[f"{kind}.{name}"][layer] for name in router.NAMES})

    def check(self, layers: int, heads: int, kv_heads: int, head_dim: int) -> None:
        """Refuse a model of another shape. Errors: BadSetting."""
        own_depth, parts, _, dim = self.tensors["centroids"].shape
        if own_depth != layers or dim != head_dim or parts not in (kv_heads, heads):
            raise BadSetting(
                f"These buckets were made for {own_depth} layers and {parts} heads of {dim} dimensions, and the model "
                f"has {layers} layers, {kv_heads} key-value heads and {head_dim} dimensions: fit them on this model."
            )

    def to(self, device: torch.device | str) -> "RoutingState":
        """Move all numbers to a device; returns self."""
        self.tensors = {name: tensor.to(device) for name, tensor in self.tensors.items()}
        return self

    def save(self, folder: Path) -> Path:
        """Write NAME.safetensors and NAME.json into a folder; returns the former."""
        tensors = {name: t.half() if name.startswith(HALF) else t.float() for name, t in self.tensors.items()}
        path = folder / f"{self.settings.name}.safetensors"
        return fitted.write(path, tensors, settings=asdict(self.settings), about=self.about)

    @classmethod
    def load(cls, path: Path) -> "RoutingState":
        """Read both files. Errors: NotFitted when they are absent, BadSetting when they are damaged."""
        if not path.is_file():
            raise NotFitted(f"There are no buckets {path.stem!r} in {path.parent.name}; fit them with `route` first.")
        stored = fitted.read(path, settings=lambda note: RoutingSettings(**note), about=dict)
        if stored is None or "centroids" not in stored[0] or stored[0]["centroids"].dim() != 4:
            raise BadSetting(
                f"The buckets {path.name} or their .json are damaged or of another version (this one reads format "
                f"{fitted.FORMAT}); fit them again."
            )
        tensors, settings, about = stored
        return cls(settings, {name: tensor.float() for name, tensor in tensors.items()}, about)


def stack(
    layers: list[dict[str, Router]], centroids: list[Tensor], settings: RoutingSettings, **about: Any
) -> RoutingState:
    """The state of routers that were fitted layer by layer, each with all query heads."""
    tensors = {"centroids": torch.stack(centroids)}
    for kind, router in layers[0].items():
        for name in router.NAMES:
            tensors[f"{kind}.{name}"] = torch.stack([layer[kind].tensors()[name] for layer in layers])
    return RoutingState(settings, tensors, about)
