"""LoRA through peft: low-rank additions to the projections of the attention, trained in the place of all weights."""

from typing import TYPE_CHECKING, Any

import torch
from peft import LoraConfig, inject_adapter_in_model
from torch import nn

from ..errors import BadSetting
from .steps import copy_of

if TYPE_CHECKING:
    from ..models import Model

PROJECTIONS = (("c_attn",), ("q_proj", "v_proj"), ("query_key_value",))  # the first that a model has


def lora_copy(model: "Model", rank: int, seed: int = 0) -> "Model":
    """The model with weights of its own in float32, frozen, and additions of this rank, which begin as nothing.

    Errors: BadSetting for a model whose attention has none of PROJECTIONS.
    """
    adapted = copy_of(model)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inject(adapted.lm, rank)
    return adapted


def inject(lm: nn.Module, rank: int, **more: Any) -> None:
    """Add LoRA to a transformers model, in place (Focus, tables 3 and 4): alpha is twice the rank, no dropout; queries,
    keys and values together where they are one projection, else queries and values."""
    names = {name.rpartition(".")[2] for name, _ in lm.named_modules()}
    projections = next((wanted for wanted in PROJECTIONS if set(wanted) <= names), None)
    if projections is None:
        listed = ", ".join(name for wanted in PROJECTIONS for name in wanted)
        raise BadSetting(f"This model's attention has none of the projections {listed}: LoRA cannot be added to it.")
    one_for_all = projections == ("c_attn",)
    about = {"r": rank, "lora_alpha": 2 * rank, "lora_dropout": 0.0, "fan_in_fan_out": one_for_all}
    inject_adapter_in_model(LoraConfig(**about, target_modules=list(projections)), lm, **more)


def trainable(lm: nn.Module) -> int:
    """How many parameters of a model have a gradient."""
    return sum(p.numel() for p in lm.parameters() if p.requires_grad)
