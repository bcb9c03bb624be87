"""Output gates: families of 2025 and later multiply what a head has read by a sigmoid of what entered the layer, before
the output projection (Qwen3-Next and Qwen3.5 each size of a head, LFM3 each head).

They are called by many names and lie in many projections. So a gate is measured where it acts: what enters the output
projection, divided by what left the heads.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import nn
from transformers import PreTrainedModel

from ..seam.layers import attention_modules

if TYPE_CHECKING:
    from .reader import Reader

PROJECTIONS = ("o_proj", "out_proj")


def gate_projections(lm: PreTrainedModel) -> dict[int, nn.Module]:
    """The output projection of each attention layer, counted from 0, whose outputs a gate multiplies before it."""
    found = {}
    for layer, module in enumerate(attention_modules(lm)):
        projection = next((getattr(module, name) for name in PROJECTIONS if hasattr(module, name)), None)
        if isinstance(projection, nn.Linear) and _gates(module):
            found[layer] = projection
    return found


def _gates(module: Any) -> bool:
    """Whether a module multiplies by a sigmoid in its `forward`, and was made with what the sigmoid is taken of."""
    names = inspect.unwrap(type(module).forward).__code__.co_names
    return "sigmoid" in names and not ("g_proj" in names and module.g_proj is None)


@contextmanager
def gates_watched(lm: PreTrainedModel, reader: "Reader") -> Iterator[None]:
    """While a reader reads: tell it what its gates let through."""
    handles = []
    for layer, projection in gate_projections(lm).items():
        reader.outputs[layer] = None

        def measure(module: nn.Module, args: tuple, layer: int = layer) -> None:
            reader.gated(layer, args[0])

        handles.append(projection.register_forward_pre_hook(measure))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
