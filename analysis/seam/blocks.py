"""What adds to the stream of a decoder: its layers, their blocks, and learned positions, by transformers' names."""

from collections.abc import Iterator
from typing import Any

from torch import nn

from ..errors import BadModel

# Learned positions that are added to the embedding of the tokens, by the names of their modules.
LEARNED = ("wpe", "embed_positions")
# Layers of other kinds by the names of their modules; what else has weights is a feed-forward block.
MIXERS = {"linear_attn": "linear", "mamba": "mamba", "conv": "conv", "temporal_block": "recurrent", "mixer": "mixer"}


def list_of_layers(lm: Any, attention: list[Any]) -> nn.ModuleList:
    """The list of all layers. Errors: BadModel."""
    for candidate in lm.modules():
        if isinstance(candidate, nn.ModuleList) and set(attention) <= set(candidate.modules()):
            inside = [[m.layer_idx for m in layer.modules() if m in set(attention)] for layer in candidate]
            if all(numbers in ([], [place]) for place, numbers in enumerate(inside)):
                return candidate
    raise not_a_sum(lm, "has several attentions in one layer")


def writing(block: nn.Module, attention: set[Any]) -> Iterator[tuple[str, nn.Module]]:
    """(kind, module) of all that writes to the stream in a layer beside its attention. What has no weights, and norms,
    are on the way."""
    for name, module in block.named_children():
        if module in attention or is_norm(module) or not any(True for _ in module.parameters()):
            continue
        if isinstance(module, nn.ModuleList) or attention & set(module.modules()):
            yield from writing(module, attention)
        else:
            yield MIXERS.get(name, "mlp"), module


def is_norm(module: nn.Module) -> bool:
    """Whether a module is a norm, by the name of its class."""
    return "norm" in type(module).__name__.lower()


def not_a_sum(lm: Any, what: str) -> BadModel:
    """The refusal of a model that does something else to its stream than add to it."""
    return BadModel(
        f"{type(lm).__name__} {what}, so a score is no sum over what wrote the stream: choose another model."
    )
