"""Reading on after a KV cache, wherever a model keeps what it has read: in the cache, or in modules of its own, as
RecurrentGemma does, whose code takes several tokens for the beginning of a text."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache

from .arguments import as_past, past_of

# What modules keep of a text, by name: the last inputs of a convolution, and the state of a recurrence.
STATES = ("conv1d_state", "recurrent_states")


def places_of_states(lm: nn.Module) -> list[tuple[nn.Module, str]]:
    """Where a model keeps a state of the text in its modules; none for one that keeps all of it in the KV cache."""
    return [(module, name) for module in lm.modules() for name in STATES if name in vars(module)]


def forget(lm: nn.Module) -> None:
    """Let the modules of a model begin a new text."""
    _restore(lm, None)


def parts_of(lm: nn.Module, ids: Tensor, cache: Cache) -> list[Tensor]:
    """Tokens [B, n] as they may be read after what a cache holds: at once, or one by one."""
    return list(ids.split(1, 1)) if places_of_states(lm) and cache.get_seq_length() else [ids]


def read_on(lm: PreTrainedModel, ids: Tensor, cache: Cache | None = None, **options: Any) -> tuple[Tensor, Cache]:
    """Read tokens [B, n] after those that a KV cache holds, or from the beginning: (logits [B, n, V], or of the last
    `logits_to_keep`, and the cache, which now holds them too).

    States that stand in modules go with the cache, so a copy of it is read on from the same place, token by token.
    """
    places = places_of_states(lm)
    if not places:
        read = lm(ids, **({} if cache is None else as_past(lm, cache)), use_cache=True, **options)
        return read.logits, past_of(read)
    cache = DynamicCache(config=lm.config) if cache is None else cache
    _restore(lm, getattr(cache, "of_modules", None))
    past = as_past(lm, cache)
    parts = [lm(part, **past, use_cache=True, **options).logits for part in parts_of(lm, ids, cache)]
    logits = torch.cat(parts, 1)
    setattr(cache, "of_modules", [getattr(*place) for place in places])  # noqa: B010
    return logits[:, -(options.get("logits_to_keep") or len(logits[0])) :], cache


def _restore(lm: nn.Module, states: list[Tensor | None] | None) -> None:
    places = places_of_states(lm)
    for (module, name), state in zip(places, states or [None] * len(places), strict=True):
        setattr(module, name, state)
