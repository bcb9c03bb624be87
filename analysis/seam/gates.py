"""Output gates: families of 2025 and later multiply what a head has read by a sigmoid of what entered the layer, before
the output projection (Qwen3-Next and Qwen3.5 each size of a head, LFM3 each head).

They are called by many names and lie in many projections. So a gate is met where it has acted: in what enters the
output projection.
"""

import inspect
from typing import Any

from torch import nn

PROJECTIONS = ("o_proj", "out_proj")


def gate_projection(module: Any) -> nn.Linear | None:
    """The output projection of an attention module that multiplies what its heads have read by a gate before it; None
    of one without a gate."""
    names = inspect.unwrap(type(module).forward).__code__.co_names
    projection = next((getattr(module, name) for name in PROJECTIONS if hasattr(module, name)), None)
    # one that was configured without its gate
    absent = "g_proj" in names and module.g_proj is None
    gated = "sigmoid" in names and not absent and isinstance(projection, nn.Linear)
    return projection if gated else None
