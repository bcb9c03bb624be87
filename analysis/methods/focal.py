"""Focal Attention: a softmax temperature, constant or learned by each layer from what enters it."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from ..declaration import field
from ..errors import BadSetting, NotFitted
from ..files import write_whole
from ..seam.calls import Attended, Call
from ..seam.layers import shape_of
from .base import Method, read_all

LEAST, MOST = 0.01, 100.0


@dataclass
class Focal(Method):
    """Every token reads all tokens before it, but more selectively: attention scores are divided by a temperature `t`
    before the softmax.

    Below 1 the largest weights grow and the rest fade; 1 is dense attention exactly; above 1 attention evens out. The
    paper trains models with t between 0.3 and 0.6 from the first step, and 0.4 was best. A model trained without it is
    not used to sharper attention, so another t than 1 usually hurts it: that is what you see here, unless the model was
    trained or fine-tuned with this t. All keys are read, so it saves nothing. Where a model caps its scores (Gemma 2),
    the temperature acts before the cap.
    """

    title = "Focal Attention"
    paper = "Focal Attention, section 2.1, equation 5"
    exported_with = {}
    kernels = ("prompt", "token")
    takes_sinks = True

    # A temperature for each layer, in place of t.
    by_layer: tuple[float, ...] | None = None
    t: float = field(0.4, "temperature of the softmax; 1 is dense attention", low=0.05, high=3.0, step=0.05)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.by_layer is not None:
            self.by_layer = tuple(map(check_temperature, self.by_layer))

    def check(self, lm: Any) -> None:
        layers = lm.config.get_text_config().num_hidden_layers
        if self.by_layer is not None and len(self.by_layer) != layers:
            raise BadSetting(f"{len(self.by_layer)} temperatures were given and the model has {layers} layers.")

    def temperature(self, layer: int) -> float:
        """The temperature of a layer."""
        return self.t if self.by_layer is None else self.by_layer[layer]

    def scale_queries(self, layer: int, query: Tensor, of_tokens: Tensor | None) -> Tensor:
        return query / self.temperature(layer)

    def attend(self, call: Call) -> Attended:
        """By torch's own kernel, since the queries are sharpened already."""
        return read_all(call)


def check_temperature(t: object) -> float:
    """`t` when it is a temperature. Errors: BadSetting."""
    if isinstance(t, bool) or not isinstance(t, (int, float)) or not LEAST <= t <= MOST:
        raise BadSetting(f"A temperature is {str(t)[:20]} and must lie between {LEAST} and {MOST:g}.")
    return float(t)


# The head dimension for which the paper gives its limits.
PAPER_DIM = 128
# The temperature, in the paper's units, that is dense attention.
DENSE = PAPER_DIM**0.5


class FocalWeights(nn.Module):
    """What is learned: `w` [L, width], one vector per layer; `offset`, a constant that is added to x w.

    The paper has no offset. Without one tau begins at its lower limit, where the clip lets no gradient through, so here
    it begins at `offset` (in the paper's units: for heads of 128; DENSE is dense attention), and w at zero.
    """

    place = "focal/learned.safetensors"  # in a model's fitted state

    def __init__(self, layers: int, width: int, offset: float = DENSE) -> None:
        super().__init__()
        if not (layers >= 1 and width >= 1 and 0 <= offset < math.inf):
            raise BadSetting(
                f"A learned temperature needs at least 1 layer and width 1 and a finite offset, and got {layers} "
                f"layers of width {width} and an offset of {offset}."
            )
        self.w = nn.Parameter(torch.zeros(layers, width))
        self.offset = float(offset)
        self.about: dict[str, Any] = {}

    def save(self, path: str | Path, **about: Any) -> Path:
        """Write one safetensors file with the note of how it was made; returns its path."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.about |= about
        note = {"offset": json.dumps(self.offset), "about": json.dumps(self.about)}
        with write_whole(path) as place:
            save_file({"w": self.w.detach().float().cpu().contiguous()}, place, note)
        return path

    @classmethod
    def load(cls, path: str | Path) -> "FocalWeights":
        """Read what `save` wrote. Errors: NotFitted when there is none, BadSetting when it is damaged."""
        path = Path(path)
        if not path.is_file():
            raise NotFitted(f"There are no temperatures {path.name!r} here: run `fit-method focal_learned` first.")
        try:
            with safe_open(path, "pt") as file:
                note, w = file.metadata(), file.get_tensor("w")
            layers, width = w.shape
            weights = cls(layers, width, json.loads(note["offset"]))
            weights.about = json.loads(note["about"])
        except (SafetensorError, OSError, ValueError, KeyError, TypeError):
            raise BadSetting(f"The file {path.name} of learned temperatures is damaged: train them again.") from None
        with torch.no_grad():
            weights.w.copy_(w)
        return weights


@dataclass
class FocalLearned(Method):
    """Every token reads all tokens before it, with a softmax temperature that each layer computes from what enters it.

    A learned vector gives each token a number. The mean of these numbers, kept between `tau_min` and `tau_max`,
    replaces the square root of the head dimension under the scores. The paper takes the mean over the *whole* text
    (literal): later tokens then change how earlier ones read, and text cannot be generated token by token. The *prefix*
    mean covers the tokens so far; it equals the literal one at the last token and leaks nothing. With *token*, every
    token decides for itself. The limits are the paper's for heads of 128 and scale with the model's: 11.31 is dense
    attention, and 5 to 10 is a temperature of 0.44 to 0.88. All keys are read, so it saves nothing.
    """

    title = "Learned Focal Attention"
    paper = "Focal Attention, section 2.2, equations 6 and 7"
    needs = "temperatures"
    kernels = ("prompt", "token")
    takes_sinks = True

    weights: FocalWeights | None = None
    mean: str = field(
        "prefix", "what the mean is taken over", options=("prefix", "literal", "token"), future=("literal",)
    )
    tau_min: float = field(5.0, "lowest temperature, for heads of 128 (11.31 is dense)", low=0.5, high=32.0, step=0.01)
    tau_max: float = field(
        10.0, "highest temperature, for heads of 128 (11.31 is dense)", low=0.5, high=32.0, step=0.01
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tau_min > self.tau_max:
            raise BadSetting(f"tau_min is {self.tau_min:g} and lies above tau_max, {self.tau_max:g}: swap them.")

    @classmethod
    def build(cls, weights: FocalWeights | None = None, /, **settings: Any) -> Self:
        """The method with these weights, and the settings they were trained with unless others are given."""
        about: dict[str, Any] = weights.about if weights else {}
        trained = {name: value for name, value in about.items() if name in ("mean", "tau_min", "tau_max")}
        return cls(weights=weights, **(trained | settings))

    def check(self, lm: Any) -> None:
        layers, width, w = shape_of(lm)[0], lm.config.get_text_config().hidden_size, self._weights.w
        if w.shape != (layers, width):
            raise BadSetting(
                f"These temperatures are for {w.shape[0]} layers of width {w.shape[1]} and the model has "
                f"{layers} of width {width}: run `fit-method focal_learned` for it."
            )
        self._weights.to(lm.device)

    @property
    def _weights(self) -> FocalWeights:
        if self.weights is None:
            raise NotFitted("Focal Attention has no temperatures yet: train some with `fit-method focal_learned`.")
        return self.weights

    def token_features(self, layer: int, hidden: Tensor, not_padding: Tensor | None) -> Tensor:
        """[B, T, 2]: x w of each token, and 1 for a real one."""
        if self.mean == "literal" and not_padding is None:
            raise BadSetting(
                "The literal mean is taken over the whole text, so it cannot decode token by token: use the prefix "
                "mean, or generate without the KV cache."
            )
        with torch.autocast(hidden.device.type, enabled=False):
            raw = hidden.float() @ self._weights.w[layer].to(hidden.device)  # [B, T]
        counted = torch.ones_like(raw) if not_padding is None else not_padding.to(raw)
        return torch.stack([raw * counted, counted], -1)

    def tau(self, of_tokens: Tensor, dim: int) -> Tensor:
        """The temperature of each token, [B, T], for heads of `dim`: what stands in the place of sqrt(dim)."""
        sums, counted = of_tokens.unbind(-1)
        if self.mean == "prefix":
            sums, counted = sums.cumsum(1), counted.cumsum(1)
        elif self.mean == "literal":
            sums, counted = (x.sum(1, keepdim=True).expand_as(x) for x in (sums, counted))
        scale = (dim / PAPER_DIM) ** 0.5
        raw = sums / counted.clamp(min=1) + self._weights.offset * scale
        return _Clip.apply(raw, self.tau_min * scale, self.tau_max * scale)

    def scale_queries(self, layer: int, query: Tensor, of_tokens: Tensor | None) -> Tensor:
        assert of_tokens is not None, "token_features gave a row for each token"
        dim = query.shape[-1]
        with torch.autocast(query.device.type, enabled=False):
            factor = dim**0.5 / self.tau(of_tokens, dim)[:, -query.shape[2] :]  # [B, n]
        return query * factor[:, None, :, None].to(query.dtype)

    def attend(self, call: Call) -> Attended:
        """By torch's own kernel, since the queries are sharpened already."""
        return read_all(call)


class _Clip(torch.autograd.Function):
    """Values kept between two limits. At a limit the gradient passes where it points back inside, so that a temperature
    that lies on one can leave it again (the paper's clip holds it there for good)."""

    @staticmethod
    def forward(ctx: Any, raw: Tensor, low: float, high: float) -> Tensor:
        ctx.save_for_backward(raw)
        ctx.limits = low, high
        return raw.clamp(low, high)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None]:
        (raw,), (low, high) = ctx.saved_tensors, ctx.limits
        stuck = ((raw <= low) & (slope > 0)) | ((raw >= high) & (slope < 0))
        return slope.masked_fill(stuck, 0.0), None, None
