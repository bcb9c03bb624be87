"""Positions beyond a model's context: another base of its rotary embedding (RoPE), for a while.

Dynamic NTK (bloc97 and emozilla 2023, as in YaRN, Peng et al. 2023) makes the base grow with the length that is read.
Here the base is set once for the length of a prompt with its answer, which is what one pass over both would use, so a
KV cache holds keys of one base only. A base of 500,000 instead of 10,000 is what Focal Attention's section 3.4 trains
with (Xiong et al. 2023); without training it shifts every rotation that the model learned.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..errors import BadModel
from ..models import Model


def reach(model: Model, way: str, factor: float) -> int:
    """Tokens that may be read at once: the model's context, or `factor` times it where positions are extended.

    `way`: `as_trained`; `longer` goes on with the model's own base; `dynamic_ntk`; `base`. Errors: BadModel for a model
    without plain rotary positions.
    """
    if way == "as_trained":
        return model.max_positions
    _modules(model)
    return int(model.max_positions * factor)


def base_for(model: Model, way: str, factor: float, base: float, length: int) -> float | None:
    """The base for a text of `length` tokens; None: the model's own."""
    if way == "base":
        return base
    if way != "dynamic_ntk" or length <= model.max_positions:
        return None
    module: Any = _modules(model)[0]
    size = 2 * module.inv_freq.numel()
    grown = factor * length / model.max_positions - (factor - 1)
    return module.config.rope_parameters["rope_theta"] * grown ** (size / (size - 2))


@contextmanager
def rotary_base(model: Model, base: float | None) -> Iterator[Model]:
    """Inside, every rotary embedding of the model has this base; on exit it is as it was. None changes nothing."""
    modules: list[Any] = [] if base is None else _modules(model)
    before = [module.inv_freq for module in modules]
    try:
        for module in modules:
            size = 2 * module.inv_freq.numel()
            powers = torch.arange(0, size, 2, dtype=torch.float32, device=module.inv_freq.device) / size
            module.inv_freq = 1.0 / base**powers
        yield model
    finally:
        for module, frequencies in zip(modules, before, strict=True):
            module.inv_freq = frequencies


def _modules(model: Model) -> list[torch.nn.Module]:
    rotary = [module for module in model.lm.modules() if hasattr(module, "inv_freq") and hasattr(module, "rope_type")]
    plain = [module for module in rotary if module.rope_type == "default"]
    if not rotary:
        raise BadModel(
            f"{model.name} has no rotary positions to extend: read within its {model.max_positions:,} tokens."
        )
    if len(plain) < len(rotary):
        raise BadModel(
            f"{model.name} already extends its positions (rotary type {rotary[0].rope_type}): read within its "
            f"{model.max_positions:,} tokens."
        )
    return plain
