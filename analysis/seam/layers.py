"""The layers of a transformers model, their shapes, and which implementation of attention they run."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from ..errors import BadModel
from .lean import undrawn

# Where a configuration names the kinds of its layers, and its names for those that are no softmax attention.
NAMING = ("layer_types", "layers_block_type", "block_types")
KINDS = {
    "linear_attention": "linear attention",
    "conv": "convolution",
    "recurrent": "recurrence",
    "mamba": "state space",
    "moe": "experts alone",
    "mlp": "feed-forward alone",
}
# Names of an output projection.
PROJECTIONS = ("o_proj", "out_proj")


def has_sinks(lm: PreTrainedModel) -> bool:
    """Whether an attention of a transformers model has learned sinks, as gpt-oss does."""
    return any(isinstance(getattr(module, "sinks", None), torch.Tensor) for module in lm.modules())


def attention_modules(lm: PreTrainedModel) -> list[Any]:
    """The softmax attention modules of a model, in order of its layers: those that call transformers' attention
    interface, whatever they are called. `layer_idx` of each is the model's own number of the layer, which a hybrid
    counts through its other layers too. Raises BadModel when they cannot be told apart."""
    modules: list[Any] = [m for m in lm.modules() if _is_attention(m)]
    modules.sort(key=lambda m: m.layer_idx)
    if not modules:
        raise BadModel(
            f"{type(lm).__name__} has no layer of softmax attention that calls transformers' attention interface, so "
            "nothing can be put in its place: choose another model."
        )
    numbers = [m.layer_idx for m in modules]
    if len(set(numbers)) < len(numbers):
        raise BadModel(
            f"{type(lm).__name__} has {len(numbers)} attention modules for {len(set(numbers))} places of its KV cache: "
            "its attention cannot be followed layer by layer, so choose another model."
        )
    # None: a module that does not say
    if any(getattr(m, "is_causal", True) is False for m in modules):
        raise BadModel(f"{type(lm).__name__} reads in both directions: choose a causal language model.")
    return modules


def has_attention(lm: PreTrainedModel) -> bool:
    """Whether a model has a layer of softmax attention that can be followed."""
    return any(map(_is_attention, lm.modules()))


def _is_attention(module: torch.nn.Module) -> bool:
    return hasattr(module, "layer_idx") and _calls_interface(type(module).forward)


@cache
def _calls_interface(forward: Callable[..., Any]) -> bool:
    """Whether a module looks up in its `forward` what computes its attention. Its name tells nothing: linear attention
    is called Attention in many families, and MLA is not in some."""
    return "ALL_ATTENTION_FUNCTIONS" in inspect.unwrap(forward).__code__.co_names


def decoder_layers(lm: PreTrainedModel) -> list[torch.nn.Module] | None:
    """The layers of the model, each with its attention and all that follows up to the next; None where they do not
    stand in one list."""
    attention = attention_modules(lm)
    for candidates in (m for m in lm.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == len(attention)):
        if all(module in list(layer.modules()) for layer, module in zip(candidates, attention, strict=True)):
            return list(candidates)
    return None


def kinds(lm: PreTrainedModel) -> list[str]:
    """What each layer of the model is, in words, by its own number: as its configuration names it."""
    config = lm.config.get_text_config()
    named = next((value for name in NAMING if isinstance(value := getattr(config, name, None), list)), [])
    layers = max(config.num_hidden_layers, 1 + max(module.layer_idx for module in attention_modules(lm)))
    words = [KINDS.get(str(kind), str(kind).replace("_", " ")) for kind in named]
    return words if len(words) == layers else ["no softmax attention"] * layers


def shape_of(lm: PreTrainedModel) -> tuple[int, int, int, int]:
    """(layers of softmax attention L, query heads H, key-value heads G, dimensions of a query D); where layers differ
    in D, the largest."""
    modules, config = attention_modules(lm), lm.config.get_text_config()
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    usual = config.hidden_size // heads
    # MLA makes a query of a part with rotary positions and one without
    sizes = [getattr(module, "qk_head_dim", None) or getattr(module, "head_dim", None) or usual for module in modules]
    return len(modules), heads, kv_heads, max(sizes)


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


def gate_projection(module: Any) -> torch.nn.Linear | None:
    """The output projection of an attention module with an output gate; None of one without.

    Families of 2025 and later multiply what a head has read by a sigmoid of what entered the layer, before the output
    projection (Qwen3-Next and Qwen3.5 each size of a head, LFM3 each head). Such gates are called by many names and lie
    in many projections, so one is met where it has acted: in what enters the output projection.
    """
    names = inspect.unwrap(type(module).forward).__code__.co_names
    projection = next((getattr(module, name) for name in PROJECTIONS if hasattr(module, name)), None)
    # one that was configured without its gate
    absent = "g_proj" in names and module.g_proj is None
    gated = "sigmoid" in names and not absent and isinstance(projection, torch.nn.Linear)
    return projection if gated else None


@contextmanager
def running(forwards: Mapping[Any, Callable[..., Any]]) -> Iterator[None]:
    """Inside, modules run these functions in the place of what they run else."""
    before = [vars(module).get("forward") for module in forwards]
    try:
        for module, forward in forwards.items():
            module.forward = forward
        yield
    finally:
        for module, forward in zip(forwards, before, strict=True):
            vars(module).pop("forward", None)
            if forward is not None:
                module.forward = forward


@contextmanager
def frozen(lm: torch.nn.Module) -> Iterator[None]:
    """The model's parameters without a gradient; afterwards as they were."""
    wanted = [p for p in lm.parameters() if p.requires_grad]
    lm.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in wanted:
            parameter.requires_grad_(True)


def empty_model(config: PreTrainedConfig, **options: Any) -> PreTrainedModel:
    """The model that a configuration describes, without any numbers."""
    return undrawn(lambda: _on_meta(config, options))


def _on_meta(config: PreTrainedConfig, options: dict[str, Any]) -> PreTrainedModel:
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, **options)


def causal_class(config: Any) -> type[PreTrainedModel] | None:
    """The class of causal language model that a configuration describes; None where transformers has none."""
    mapping: Any = AutoModelForCausalLM._model_mapping
    return mapping[type(config)] if type(config) in mapping else None


def draw_weights(lm: PreTrainedModel, module: torch.nn.Module) -> None:
    """Fill the parameters of one module of a model at random, as its family begins a training."""
    lm._init_weights(module)
