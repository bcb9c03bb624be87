"""Softmax temperature (Focal Attention)."""

from collections.abc import Mapping
from typing import Any

from ..declaration import field
from ..declaration.command import SMALLEST, OfText, Shape, head, layer, long_text, part, seed, window

# Passes of `temperature-curve` where no temperature is named.
TEMPERATURES = 10


class Temperature(OfText):
    """What a softmax temperature does to every head on a text (Focal Attention)."""

    place = "temperature.sharpness:temperature"
    page = "/softmax-temperature"
    version = 2
    readings = 0.7
    served = {"part": 0}
    looks = True

    t: list[float] | None = field(None, "softmax temperatures; 1 is dense attention (default: 0.4)")
    layer: int = layer()
    head: int = head()
    query: int | None = field(None, "position of the query in the window (default: the strongest far read)")
    part: int = part()
    long_text: str = long_text()


class QueriesKeys(OfText):
    """Queries and keys of a window in float16, from which a browser computes attention at any temperature."""

    place = "temperature.live:queries_keys"
    page = "/softmax-temperature"
    readings = 0.4
    served = {"part": 0}
    looks = True

    layer: int | None = field(None, "number of the layer (default: all layers)")
    queries: int = field(32, "queries that stand for all of them, spread over the window", low=1, high=4096)
    part: int = part()
    long_text: str = long_text()


class TemperatureCurve(OfText):
    """Perplexity of a text at softmax temperatures, for all layers or one at a time."""

    place = "temperature.curve:temperature_curve"
    page = "/softmax-temperature?temperature_tab=text"
    version = 3
    scores = True

    t: list[float] | None = field(None, "softmax temperatures; 1 is dense attention")
    by_layer: list[float] | None = field(None, "one temperature for each layer")
    layers: list[float] | None = field(None, "temperatures to apply to one layer at a time")
    window: int | None = window()
    seed: int = seed()
    long_text: str = long_text("first")

    @classmethod
    def workload(cls, arguments: Mapping[str, Any], tokens: int, shape: Shape = SMALLEST) -> int:
        """Passes over the text: dense, each temperature of all layers but 1, each of one layer in every layer, and one
        set for all layers."""
        everywhere, alone = arguments.get("t"), arguments.get("layers")
        passes = 1 + bool(arguments.get("by_layer"))
        passes += sum(t != 1 for t in everywhere) if isinstance(everywhere, list) else TEMPERATURES
        passes += shape.layers * len(alone) if isinstance(alone, list) else 0
        return max(int(tokens), 1) * passes
