"""The layers of a transformers model, their shapes, and which implementation of attention they run."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from ..errors import BadModel


def attention_modules(lm: PreTrainedModel) -> list[torch.nn.Module]:
    """The attention module of every layer, in order of layers. Raises BadModel when they cannot be told apart."""
    modules = [m for m in lm.modules() if hasattr(m, "layer_idx") and "attention" in type(m).__name__.lower()]
    modules.sort(key=lambda m: m.layer_idx)
    layers = lm.config.get_text_config().num_hidden_layers
    if [m.layer_idx for m in modules] != list(range(layers)):
        raise BadModel(
            f"{type(lm).__name__} has {layers} layers but {len(modules)} attention modules could be found: "
            "its attention cannot be followed layer by layer, so choose another model."
        )
    if not all(getattr(m, "is_causal", True) for m in modules):
        raise BadModel(f"{type(lm).__name__} reads in both directions: choose a causal language model.")
    return modules


def decoder_layers(lm: PreTrainedModel) -> list[torch.nn.Module] | None:
    """The layers of the model, each with its attention and all that follows up to the next; None where they do not
    stand in one list."""
    attention = attention_modules(lm)
    for candidates in (m for m in lm.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == len(attention)):
        if all(module in list(layer.modules()) for layer, module in zip(candidates, attention, strict=True)):
            return list(candidates)
    return None


def shape_of(lm: PreTrainedModel) -> tuple[int, int, int, int]:
    """(layers L, query heads H, key-value heads G, dimensions of a head D)."""
    config = lm.config.get_text_config()
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    return config.num_hidden_layers, heads, kv_heads, getattr(config, "head_dim", None) or config.hidden_size // heads


def has_rotary(lm: torch.nn.Module) -> bool:
    """Whether the positions of a model are rotary, so that queries and keys can be turned to others."""
    return any("rotary" in name for name, _ in lm.named_modules())


def stock_attention(lm: PreTrainedModel) -> str:
    """The name of the attention implementation that the model runs now, such as `sdpa`."""
    return lm.config._attn_implementation


@contextmanager
def attention_as(lm: PreTrainedModel, implementation: str) -> Iterator[None]:
    """The model with another implementation of attention. Errors: ValueError where its family has none by this name."""
    stock = stock_attention(lm)
    try:
        lm.set_attn_implementation(implementation)
        yield
    finally:
        lm.set_attn_implementation(stock)


def causal_class(config: Any) -> type[PreTrainedModel] | None:
    """The class of causal language model that a configuration describes; None where transformers has none."""
    mapping = AutoModelForCausalLM._model_mapping
    return mapping[type(config)] if type(config) in mapping else None


def bypasses_attention_interface(model_class: type[PreTrainedModel]) -> bool:
    """Whether a family computes its attention by itself, so that nothing can be registered in its place."""
    return not model_class._supports_attention_backend


def draw_weights(lm: PreTrainedModel, module: torch.nn.Module) -> None:
    """Fill the parameters of one module of a model at random, as its family begins a training."""
    lm._init_weights(module)
