"""Focal Attention with a constant temperature."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..declaration import field
from ..errors import BadSetting
from ..seam.calls import Attended, Call
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
    kernels = ("prompt", "token")

    by_layer: tuple[float, ...] | None = None  # a temperature for each layer, in place of t
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


def check_temperature(t) -> float:
    """`t` when it is a temperature. Errors: BadSetting."""
    if isinstance(t, bool) or not isinstance(t, (int, float)) or not LEAST <= t <= MOST:
        raise BadSetting(f"A temperature is {str(t)[:20]} and must lie between {LEAST} and {MOST:g}.")
    return float(t)
