"""Training the learned temperatures of Focal Attention, the model itself frozen (Focal Attention, section 2.2).

It says what a temperature alone can do for a model that was trained without it. Fine-tuning the model as well is the
other half of the paper's adaptation, and training it from the start (`pretrain --attention focal_learned`) the rest.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..commands.quality import FitMethod
from ..errors import AnalysisError, BadSetting
from ..methods.focal import DENSE, FocalLearned, FocalWeights
from ..metrics.quality import perplexity
from ..seam.attention import apply
from ..seam.layers import frozen
from .steps import add_gradients, warmed

if TYPE_CHECKING:
    from ..models import Model

# Windows at the end of the text that are not trained on.
HELD_OUT = 8
# At most one in so many.
SHARE = 8


@dataclass(frozen=True)
class FocalTraining:
    """What a run is. Limits and offset are for heads of 128; the offset begins at dense attention, and so does the
    upper limit, unlike the paper's 10: a model that exists should begin as it is."""

    steps: int = FitMethod.steps
    tokens_per_step: int = 2048
    length: int = 1024
    rate: float = FitMethod.rate
    warm_up: int = 20
    mean: str = FitMethod.mean
    tau_min: float = FitMethod.tau_min
    tau_max: float = DENSE
    offset: float = DENSE
    seed: int = 0


def train_temperatures(
    model: "Model",
    train_ids: np.ndarray,
    plan: FocalTraining,
    progress: Callable[[float, str], None] = lambda fraction, stage: None,
) -> tuple[FocalWeights, list[dict]]:
    """Train one vector per layer on `train_ids` (one long run of tokens); the model stays as it is.

    Returns the weights, which remember their settings, and one row per step: `step loss`; the first holds `held_out`
    before and the last after it, nats per token of windows that were not trained on, with `temperature`, the mean of
    each layer's over these windows beside dense attention (1). Errors: BadSetting for too short a text, AnalysisError
    where the loss is no number.
    """
    length = min(plan.length, model.max_positions)
    count = min(HELD_OUT, len(train_ids) // (SHARE * length))
    if count == 0:
        raise BadSetting(
            f"The text has {len(train_ids):,} tokens, and training on windows of {length:,} with one in eight held out "
            f"needs {SHARE * length:,}: give more text, or shorter windows."
        )
    ids, held_out = np.split(train_ids, [len(train_ids) - count * length])
    weights = FocalWeights(model.num_layers, model.width, plan.offset).to(model.device)
    method = FocalLearned(weights, plan.mean, plan.tau_min, plan.tau_max)
    optimiser = torch.optim.AdamW([weights.w], lr=plan.rate, betas=(0.9, 0.95), weight_decay=0.0)
    draw, log = np.random.default_rng(plan.seed), []
    # Before any step: what dense attention gives, since the offset begins there.
    before = _held_out(model, method, held_out, length)
    with frozen(model.lm):
        for step in range(plan.steps):
            progress(step / plan.steps, f"temperatures, step {step + 1} of {plan.steps}")
            optimiser.param_groups[0]["lr"] = plan.rate * warmed(step, plan.steps, plan.warm_up)
            optimiser.zero_grad()
            starts = draw.integers(0, len(ids) - length, max(1, plan.tokens_per_step // length))
            with apply(model, method, kernels=True):
                total = add_gradients(model, (ids[start : start + length] for start in starts), len(starts))
            if not math.isfinite(total):
                raise AnalysisError(f"The loss is no number at step {step + 1}: train with a rate below {plan.rate:g}.")
            optimiser.step()
            log.append({"step": step, "loss": total} | ({} if step else before))
    if plan.steps > 1:
        log[-1] |= _held_out(model, method, held_out, length)
    weights.requires_grad_(False)
    names = ("steps", "rate", "seed", "mean", "tau_min", "tau_max")
    weights.about = {"kind": "trained"} | {name: getattr(plan, name) for name in names}
    return weights, log


def _held_out(model: "Model", method: FocalLearned, ids: np.ndarray, length: int) -> dict:
    losses, temperature = watched(model, method, ids, length)
    return {"held_out": float(losses.mean()), "temperature": temperature}


@torch.no_grad()
def watched(model: "Model", method: FocalLearned, ids: np.ndarray, length: int) -> tuple[np.ndarray, list[float]]:
    """Nats per token of windows [n, length - 1], and the mean temperature of each layer on them beside dense
    attention, which is 1."""
    temperatures: dict[int, list[float]] = {layer: [] for layer in range(model.num_layers)}
    plain = method.tau

    class Watching(FocalLearned):
        def scale_queries(self, layer: int, query: Tensor, of_tokens: Tensor | None) -> Tensor:
            assert of_tokens is not None, "temperatures are made of tokens"
            dim = query.shape[-1]
            temperatures[layer].append(float(plain(of_tokens, dim).mean()) / dim**0.5)
            return super().scale_queries(layer, query, of_tokens)

    with apply(model, Watching(method.weights, method.mean, method.tau_min, method.tau_max), kernels=True):
        losses = perplexity(model, ids, length).losses
    return losses, [float(np.mean(values)) for values in temperatures.values()]
