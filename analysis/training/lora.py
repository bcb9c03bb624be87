"""LoRA through peft: low-rank additions to the projections of the attention, trained in the place of all weights."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from peft import LoraConfig, inject_adapter_in_model
from torch import nn

from ..errors import BadSetting
from ..groups.router import FocusRouter
from .run import Run
from .settings import RouterTraining

if TYPE_CHECKING:
    from ..models import Model

PROJECTIONS = (("c_attn",), ("q_proj", "v_proj"), ("query_key_value",))  # the first that a model has
MOST_RANK = 512


def finetune_lora(
    model: "Model",
    start: FocusRouter,
    train_ids: np.ndarray,
    plan: RouterTraining,
    rank: int,
    checkpoint: Path,
    progress: Callable[[float, str], None] = lambda fraction, stage: None,
) -> tuple["Model", FocusRouter, list[torch.Tensor], list[dict]]:
    """As `training.focus.finetune`, but only additions of this rank are trained, at the plan's `base_rate`; `plan` is
    of phase 2 and reads as a control. Returns (the copy as a `Model`, then as `train_router`)."""
    adapted = lora_copy(model, rank, plan.seed)
    run = Run(adapted, start.variant(), train_ids, plan, checkpoint, None)
    return adapted, *run.train(progress)


def lora_copy(model: "Model", rank: int, seed: int = 0) -> "Model":
    """The model with weights of its own in float32, frozen, and additions of this rank, which begin as nothing.

    Errors: BadSetting for a rank out of range, or a model whose attention has none of PROJECTIONS.
    """
    adapted = replace(model, lm=copy.deepcopy(model.lm).float())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inject(adapted.lm, rank)
    return adapted


def inject(lm: nn.Module, rank: int, **more: Any) -> None:
    """Add LoRA to a transformers model, in place (Focus, tables 3 and 4): alpha is twice the rank, no dropout; queries,
    keys and values together where they are one projection, else queries and values."""
    if not 1 <= rank <= MOST_RANK:
        raise BadSetting(f"The rank is {rank:,} and must lie between 1 and {MOST_RANK}.")
    names = {name.rpartition(".")[2] for name, _ in lm.named_modules()}
    projections = next((wanted for wanted in PROJECTIONS if set(wanted) <= names), None)
    if projections is None:
        listed = ", ".join(name for wanted in PROJECTIONS for name in wanted)
        raise BadSetting(f"This model's attention has none of the projections {listed}: LoRA cannot be added to it.")
    config = LoraConfig(
        r=rank,
        lora_alpha=2 * rank,
        lora_dropout=0.0,
        target_modules=list(projections),
        fan_in_fan_out=projections == ("c_attn",),
    )
    inject_adapter_in_model(config, lm, **more)


def trainable(lm: nn.Module) -> int:
    """How many parameters of a model have a gradient."""
    return sum(p.numel() for p in lm.parameters() if p.requires_grad)
