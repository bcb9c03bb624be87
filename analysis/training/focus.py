"""Training Focus' router with the base model frozen (Focus, section 2; phase 1 of section 4), then the base with it, or
LoRA through peft: low-rank additions to the projections of the attention in the place of all weights."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from peft import LoraConfig, inject_adapter_in_model
from torch import nn

from ..errors import BadSetting
from ..groups.router import FocusRouter
from ..seam.layers import frozen
from .run import Also, Progress, Run, Watch
from .settings import RouterTraining
from .steps import copy_of

if TYPE_CHECKING:
    from ..models import Model

# The first that a model has.
PROJECTIONS = (("c_attn",), ("q_proj", "v_proj"), ("query_key_value",))


def train_router(
    model: "Model",
    train_ids: np.ndarray,
    plan: RouterTraining,
    checkpoint: Path,
    progress: Progress = lambda fraction, stage: None,
    also: Also | None = None,
    watch: Watch = lambda log: None,
) -> tuple[FocusRouter, list[torch.Tensor], list[dict]]:
    """Train a router on `train_ids` (one long run of tokens), the base model frozen; resumes from `checkpoint`.

    Inference is hard and causal, so the *hard* loss, with the balance frozen on pooled training windows, is measured
    every 100 steps on the last `check_windows` windows of the text, which are not trained on; the router of the lowest
    one is returned. Returns it, the attention inputs it was balanced on (L tensors [N, d]) and one row per step: `step
    loss`; every 20 steps `shares` (the largest group's of each layer, over 4 training windows), `largest_share` (the
    worst layer's), `stability` (share of these tokens whose best group is the one it was at the last look) and what
    `also(router, inputs of the 4 windows, router of the start, inputs then)` adds; `hard` where it was measured; the
    first row holds the look before it as `start`. `watch` is shown the rows so far before every step. When `progress`
    raises Cancelled, the steps that were done are kept first. Errors: BadSetting for a corpus that is too short or a
    checkpoint of another plan, AnalysisError when the loss is no number; the last checkpoint stays.
    """
    with frozen(model.lm):
        return Run(model, None, train_ids, plan, checkpoint, also).train(progress, watch)


def finetune(
    model: "Model",
    start: FocusRouter,
    train_ids: np.ndarray,
    plan: RouterTraining,
    checkpoint: Path,
    progress: Progress = lambda fraction, stage: None,
    also: Also | None = None,
    watch: Watch = lambda log: None,
    rank: int | None = None,
    dora: bool = False,
) -> tuple["Model", FocusRouter, list[torch.Tensor], list[dict]]:
    """Phase 2: train all parameters of a copy of the model in float32, or LoRA (`dora`: DoRA) additions of this rank
    alone, and the router `start` unless the plan reads hard; `model` and `start` stay as they are. Returns (the copy as
    a `Model`, then as `train_router`).
    """
    copied = copy_of(model) if rank is None else lora_copy(model, rank, plan.seed, dora)
    return copied, *Run(copied, start.variant(), train_ids, plan, checkpoint, also).train(progress, watch)


def lora_copy(model: "Model", rank: int, seed: int = 0, dora: bool = False) -> "Model":
    """The model with weights of its own in float32, frozen, and additions of this rank, which begin as nothing; with
    `dora` the length of every column is trained apart from its direction (Liu et al. 2024, arXiv 2402.09353).

    Errors: BadSetting for a model whose attention has none of PROJECTIONS.
    """
    adapted = copy_of(model)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inject(adapted.lm, rank, use_dora=dora)
    return adapted


def inject(lm: nn.Module, rank: int, use_dora: bool = False, **more: Any) -> None:
    """Add LoRA to a transformers model, in place (Focus, tables 3 and 4): alpha is twice the rank, no dropout; queries,
    keys and values together where they are one projection, else queries and values."""
    names = {name.rpartition(".")[2] for name, _ in lm.named_modules()}
    projections = next((wanted for wanted in PROJECTIONS if set(wanted) <= names), None)
    if projections is None:
        listed = ", ".join(name for wanted in PROJECTIONS for name in wanted)
        raise BadSetting(f"This model's attention has none of the projections {listed}: LoRA cannot be added to it.")
    one_for_all = projections == ("c_attn",)
    about: dict[str, Any] = {"r": rank, "lora_alpha": 2 * rank, "lora_dropout": 0.0, "fan_in_fan_out": one_for_all}
    about |= {"use_dora": use_dora}
    inject_adapter_in_model(LoraConfig(**about, target_modules=list(projections)), lm, **more)


def trainable(lm: nn.Module) -> int:
    """How many parameters of a model have a gradient."""
    return sum(p.numel() for p in lm.parameters() if p.requires_grad)
