"""Models of sizes that people use, two layers of each, on the fake device; every method with fitted state made up."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._pytree import tree_map_only
from transformers import GptOssConfig, LlamaConfig, PreTrainedConfig, PreTrainedModel, Qwen2Config

from analysis.fitted import Fitted
from analysis.groups.router import FocusRouter
from analysis.indexers.fit import FittedIndexer, Fitting
from analysis.indexers.sizes import Sizes
from analysis.indexers.state import packed
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.methods.focal import FocalWeights
from analysis.routers.routing_state import RoutingSettings, RoutingState
from analysis.seam.layers import causal_class
from lab.rehearsal.device import NAME

# Alike from here on.
LAYERS = 2
LONGEST = 1 << 17
BUCKETS = 64


def llama() -> PreTrainedConfig:
    """The shape of Llama 3.1 8B."""
    return LlamaConfig(
        hidden_size=4096,
        intermediate_size=14336,
        num_attention_heads=32,
        num_key_value_heads=8,
        vocab_size=128256,
        num_hidden_layers=LAYERS,
        max_position_embeddings=LONGEST,
    )


def qwen(layers: int = LAYERS) -> PreTrainedConfig:
    """The shape of Qwen 2.5 0.5B."""
    return Qwen2Config(
        hidden_size=896,
        intermediate_size=4864,
        num_attention_heads=14,
        num_key_value_heads=2,
        vocab_size=151936,
        num_hidden_layers=layers,
        max_position_embeddings=LONGEST,
        tie_word_embeddings=True,
    )


def gpt_oss() -> PreTrainedConfig:
    """The shape of gpt-oss-20b: a layer with a sliding window and one without, learned sinks in both."""
    return GptOssConfig(
        hidden_size=2880,
        num_attention_heads=64,
        num_key_value_heads=8,
        head_dim=64,
        vocab_size=201088,
        num_hidden_layers=LAYERS,
        sliding_window=128,
        max_position_embeddings=LONGEST,
    )


SHAPES: dict[str, Callable[[], PreTrainedConfig]] = {"llama": llama, "qwen": qwen, "gpt_oss": gpt_oss}


class _NoExperts(nn.Module):
    """In the place of a mixture, which asks the device which expert is read: that is the model's own affair."""

    def forward(self, hidden: Tensor) -> tuple[Tensor, None]:
        return hidden, None


def on_devices(config: PreTrainedConfig, *devices: str, kind: torch.dtype = torch.bfloat16) -> PreTrainedModel:
    """The model without numbers, its layers laid over these devices: inside `fake_device` only."""
    made = causal_class(config)
    assert made is not None
    # random numbers need a generator, which a fake device lacks
    with unset_fake_temporarily(), torch.device("meta"):
        lm = made._from_config(config, dtype=kind).eval()
    for layer in lm.model.layers:
        if isinstance(config, GptOssConfig):
            layer.mlp = _NoExperts()
    for first in (lm.model.embed_tokens, lm.model.rotary_emb):
        _lay(first, devices[0])
    for number, layer in enumerate(lm.model.layers):
        _lay(layer, devices[number * len(devices) // len(lm.model.layers)])
    for last in (lm.model.norm, lm.lm_head):
        _lay(last, devices[-1])
    return lm


def _lay(part: nn.Module, device: str) -> None:
    """Lay a part of a model on a device, and have its inputs brought there, as accelerate does. What shares its weights
    with another part lies where that does."""
    if any(weights.is_meta for weights in (*part.parameters(), *part.buffers())):
        part.to_empty(device=device)
    device = next((str(weights.device) for weights in part.parameters()), device)

    def bring(module: nn.Module, args: tuple, kwargs: dict) -> tuple:
        return tree_map_only(Tensor, lambda tensor: tensor.to(device), (args, kwargs))

    part.register_forward_pre_hook(bring, with_kwargs=True)


def methods(config: PreTrainedConfig) -> dict[str, Callable[[], Method]]:
    """Every method as it is by default, with fitted state of the right shapes; Quest chooses in the last layer."""
    heads, kv_heads, width = config.num_attention_heads, config.num_key_value_heads, config.hidden_size
    dim = getattr(config, "head_dim", None) or width // heads
    listed: dict[str, Any] = {**METHODS}
    return listed | {
        "focus": lambda: listed["focus"].build(_there(FocusRouter(LAYERS, width))),
        "quest": lambda: listed["quest"](dense_layers=1),
        "csa": lambda: listed["csa"].build([*[512] * (LAYERS * heads), 1024]),
        "focal_learned": lambda: listed["focal_learned"].build(_there(FocalWeights(LAYERS, width))),
        "indexer": lambda: listed["indexer"].build(_indexers(width, heads, kv_heads, dim)),
        "bucket_routing": lambda: listed["bucket_routing"].build(_buckets(heads, kv_heads, dim)),
        "magicpig": lambda: listed["magicpig"](_means(heads, kv_heads, dim)),
        "routing_transformer": lambda: listed["routing_transformer"](_clusters(kv_heads, dim)),
        "duo_attention": lambda: listed["duo_attention"].build(Fitted("duo_attention", {"far": _far(kv_heads)})),
        "kvzap": lambda: listed["kvzap"].build(_lines(kv_heads, width)),
        "triattention": lambda: listed["triattention"].build(_mean_queries(heads, dim // 2)),
    }


def _there(module: nn.Module) -> nn.Module:
    """A small module on the device: parameters without numbers cannot be moved."""
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        module.register_parameter(name, None) if name in module._parameters else module.register_buffer(name, None)
        moved = torch.empty(tensor.shape, device=NAME)
        setattr(module, name, nn.Parameter(moved, requires_grad=False) if isinstance(tensor, nn.Parameter) else moved)
    module.to = lambda device: module  # type: ignore[method-assign,assignment]
    return module


def _buckets(heads: int, kv_heads: int, dim: int) -> RoutingState:
    settings = RoutingSettings(BUCKETS, 64, 4, LONGEST, 0, [True] * LAYERS)
    tensors: dict[str, Any] = {
        "centroids": torch.empty(LAYERS, kv_heads, BUCKETS, dim),
        "gwr_linear.weights": torch.empty(LAYERS, heads, dim, BUCKETS),
    }
    return RoutingState(settings, tensors, {})


def _means(heads: int, kv_heads: int, dim: int) -> Fitted:
    shapes = {"query": (LAYERS, heads, dim), "key": (LAYERS, kv_heads, dim), "norm": (LAYERS, kv_heads)}
    return Fitted("magicpig", {name: torch.empty(shape) for name, shape in shapes.items()})


def _clusters(kv_heads: int, dim: int) -> Fitted:
    return Fitted("routing_transformer", {n: torch.empty(LAYERS, kv_heads, 16, dim) for n in ("kept", "undone")})


def _far(kv_heads: int) -> Tensor:
    return torch.arange(LAYERS * kv_heads).float().view(LAYERS, kv_heads)


def _mean_queries(heads: int, pairs: int) -> Fitted:
    of_heads = {name: torch.empty(LAYERS, heads, pairs) for name in ("mean_real", "mean_imaginary", "size")}
    of_layers = {name: torch.empty(LAYERS, pairs) for name in ("real", "imaginary", "rates")}
    return Fitted("triattention", of_heads | of_layers | {"factor": torch.empty(LAYERS)})


def _indexers(width: int, heads: int, kv_heads: int, dim: int) -> Fitted:
    fitting = Fitting("dsa", width, heads, kv_heads, dim, Sizes())
    return packed({(layer, "dsa"): FittedIndexer(fitting.indexer, fitting.sizes) for layer in range(LAYERS)})


def _lines(kv_heads: int, width: int) -> Fitted:
    return Fitted("kvzap", {"weight": torch.empty(LAYERS, kv_heads, width), "bias": torch.empty(LAYERS, kv_heads)})
