"""What transformers hands a model and its attention modules, told apart by type: the names change with its versions."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from inspect import formatannotation, signature
from typing import Any

from torch import Tensor, nn
from transformers.cache_utils import Cache

from ..errors import BadModel


@dataclass(frozen=True)
class Entering:
    """What enters an attention module: `hidden` [B, T, d]; `mask` [B, 1 or H, T, Tk]; `tables` (cos, sin) of a rotary
    embedding; `cache`, the KV cache of all layers. None where there is no such thing."""

    hidden: Tensor
    mask: Tensor | None
    tables: tuple[Tensor, Tensor] | None
    cache: Cache | None

    @classmethod
    def of(cls, args: tuple, kwargs: dict) -> "Entering":
        """From the arguments of the module."""
        values = (*args, *kwargs.values())
        tensors = [value for value in values if isinstance(value, Tensor)]
        hidden = next(value for value in tensors if value.ndim == 3 and value.is_floating_point())
        mask = next((value for value in tensors if value.ndim == 4), None)
        pairs = (value for value in values if isinstance(value, tuple) and len(value) == 2)
        tables = next((pair for pair in pairs if all(isinstance(item, Tensor) for item in pair)), None)
        return cls(hidden, mask, tables, next(filter(_is_cache, values), None))


def _is_cache(value: Any) -> bool:
    return isinstance(value, Cache)


def as_past(lm: nn.Module, cache: Cache | None) -> dict[str, Cache | None]:
    """The keyword argument with which a model takes a KV cache."""
    # a wrapper takes anything and hands it on
    names = (_cache_name(type(module).forward) for module in lm.modules())
    name = next(filter(None, names), None)
    if name is None:
        raise BadModel(f"{type(lm).__name__} takes no KV cache of transformers: choose another model.")
    return {name: cache}


@lru_cache(maxsize=256)
def _cache_name(forward: Callable) -> str | None:
    parameters = signature(forward).parameters.items()
    return next((name for name, parameter in parameters if "Cache" in formatannotation(parameter.annotation)), None)


def past_of(read: Any) -> Cache:
    """The KV cache in what a model returned."""
    cache = next(filter(_is_cache, read.values()), None)
    if cache is None:
        raise BadModel(
            "The model returned no KV cache of transformers and keeps what it has read to itself, so no text can be "
            "read on from one place twice: choose another model."
        )
    return cache
