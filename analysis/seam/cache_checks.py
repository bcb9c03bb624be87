"""What the seam must know of any KV cache, transformers' own or ours: where a text stands in it, what its layers keep,
and whether what they hand over can be read as one key for each token.
"""

from collections.abc import Callable
from typing import Any

from transformers import GenerationConfig, PreTrainedModel
from transformers.cache_utils import (
    Cache,
    CacheLayerMixin,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    StaticLayer,
)

from ..errors import AnalysisError, BadModel
from .arguments import as_past
from .cache import CompactLayer, GroupedLayer
from .layers import attention_modules
from .read_on import forget

OTHER_CACHES = ("cache_implementation", "assistant_model", "prompt_lookup_num_tokens")


def layer_of(cache: Cache | None, layer: int) -> CacheLayerMixin | None:
    """The part of a KV cache that belongs to one layer; None before it was made."""
    layers = getattr(cache, "layers", [])
    return layers[layer] if layer < len(layers) else None


def past_length(cache: Cache | None, layer: int, coming: int) -> int:
    """Tokens already in the KV cache of `layer` before the `coming` ones (0 without a cache)."""
    if cache is None:
        return 0
    held = layer_of(cache, layer)
    if held is None or hasattr(held, "get_seq_length"):
        return int(cache.get_seq_length(layer))
    # It reads the keys of an earlier layer, which has taken in the coming tokens already.
    earlier = [other for other in cache.layers[:layer] if hasattr(other, "get_seq_length")]
    return max(int(other.get_seq_length()) for other in earlier) - coming


def sees_all(lm: PreTrainedModel) -> list[bool]:
    """Which of a model's layers of softmax attention keep the whole past in their KV cache: those without a window."""
    cache_layers, modules = DynamicCache(config=lm.config).layers, attention_modules(lm)
    if not cache_layers:
        return [True] * len(modules)
    layers = [cache_layers[module.layer_idx] for module in modules]
    return [isinstance(layer, DynamicLayer) and not layer.is_sliding for layer in layers]


def check_keys(held: CacheLayerMixin | None, tokens: int, keys: int) -> None:
    """Raise BadModel where a layer hands over other than one key for each of the text's `tokens` so far: the places of
    queries and keys would be guessed. A static cache may hand over more, a sliding one and our own fewer."""
    # a layer that reads the keys of an earlier one
    if held is not None and not hasattr(held, "get_seq_length"):
        return
    more = keys > tokens and not isinstance(held, StaticLayer)
    may_drop = (GroupedLayer, CompactLayer, DynamicSlidingWindowLayer, StaticLayer)
    if more or (keys < tokens and not isinstance(held, may_drop)):
        why = "so others were dropped from its KV cache"
        if more:
            why = "and some of them, such as compressed ones, stand for several tokens or for none"
        raise BadModel(
            f"A layer hands over {keys:,} keys for a text of {tokens:,} tokens, {why}, so what a token reads of which "
            "other cannot be said: choose another model, or another KV cache."
        )


def guarded(lm: Any, generate: Callable, own_cache: Callable[[], Cache | None]) -> Callable:
    """`generate` that refuses beam search, and takes the method's own KV cache where the caller chose none.

    Beams reorder the KV cache, and what methods remember is not reordered.
    """

    def checked(*args: Any, **kwargs: Any) -> Any:
        configs = [config for config in (*args, *kwargs.values()) if isinstance(config, GenerationConfig)]
        config = configs[0] if configs else lm.generation_config
        beams = kwargs.get("num_beams") or config.num_beams or 1
        if beams > 1:
            raise AnalysisError(
                f"Beam search ({beams} beams) is not supported with a method applied: use greedy decoding or sampling."
            )
        chosen = any(isinstance(value, Cache) for value in kwargs.values())
        chosen |= any(kwargs.get(name, getattr(config, name, None)) is not None for name in OTHER_CACHES)
        if not chosen and kwargs.get("use_cache", config.use_cache) is not False:
            if (cache := own_cache()) is not None:
                kwargs |= as_past(lm, cache)
        forget(lm)
        return generate(*args, **kwargs)

    return checked
