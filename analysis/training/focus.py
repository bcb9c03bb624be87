"""Training Focus' router with the base model frozen (Focus, section 2; phase 1 of section 4), then the base with it."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..groups.router import FocusRouter
from .lora import lora_copy
from .run import Also, Progress, Run, Watch
from .settings import RouterTraining
from .steps import copy_of, frozen

if TYPE_CHECKING:
    from ..models import Model


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

    The groups are balanced by Sinkhorn over each window (literal), unless `plan` says otherwise. Inference is hard and
    causal, so the *hard* loss, with the balance frozen on pooled training windows, is measured every 100 steps on the
    last `check_windows` windows of the text, which are not trained on; the router of the lowest one is returned.
    Returns it, the attention inputs it was balanced on (L tensors [N, d]) and one row per step: `step loss`; every 20
    steps `shares` (the largest group's of each layer, over 4 training windows), `largest_share` (the worst layer's),
    `stability` (share of these tokens whose best group is the one it was at the last look; groups keep their numbers in
    a run) and what `also(router, inputs of the 4 windows, router of the start, inputs then)` adds; `hard` where it was
    measured; the first row holds the look before it as `start`. `watch` is shown the rows so far before every step.
    When `progress` raises Cancelled, the steps that were done are kept first. Raises BadSetting for a corpus that is
    too short or a checkpoint of another plan, AnalysisError when the loss is no number; the last checkpoint stays.
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
) -> tuple["Model", FocusRouter, list[torch.Tensor], list[dict]]:
    """Phase 2: train all parameters of a copy of the model in float32, or LoRA additions of this rank alone, and the
    router `start` unless the plan reads hard; `model` and `start` stay as they are. Returns (the copy as a `Model`,
    then as `train_router`).
    """
    copied = copy_of(model) if rank is None else lora_copy(model, rank, plan.seed)
    return copied, *Run(copied, start.variant(), train_ids, plan, checkpoint, also).train(progress, watch)
