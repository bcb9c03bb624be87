"""Fine-tuning a copy of a model that reads otherwise than it was trained to: texts longer than its context, with
another base of its rotary positions, or by a method in the place of dense attention."""

import contextlib
import copy
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from ..errors import BadSetting
from ..methods.base import Method
from ..models import Model
from ..probes.rotary import rotary_base
from ..seam.attention import apply
from .checkpoints import load_checkpoint, save_checkpoint

KEEP_EVERY = 10  # steps between checkpoints


@dataclass(frozen=True)
class Extension:
    """Everything that decides the weights: sequences of `length` tokens, positions with `base` (None: the model's own),
    AdamW at the peak `rate` with a linear warm-up and a cosine to 5%. Errors: BadSetting."""

    length: int
    base: float | None = None
    steps: int = 200
    tokens_per_step: int = 8192
    rate: float = 1e-4
    warm_up: int = 20
    clip: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.steps <= 1_000_000 or not 0 < self.rate < 1 or self.length < 2 or self.tokens_per_step < 1:
            raise BadSetting(
                f"Training takes 1 or more steps at a rate between 0 and 1, and got {self.steps} steps of "
                f"{self.tokens_per_step:,} tokens at {self.rate}."
            )

    def rate_at(self, step: int) -> float:
        """The learning rate of a step."""
        if step < self.warm_up:
            return self.rate * (step + 1) / self.warm_up
        done = (step - self.warm_up) / max(1, self.steps - self.warm_up)
        return self.rate * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done)))


def extend(
    model: Model,
    ids: np.ndarray,
    plan: Extension,
    checkpoint: Path,
    progress: Callable[[float, str], None],
    corpus: str = "",
    method: Method | None = None,
) -> tuple[Model, list[float]]:
    """(a trained float32 copy, loss of every step in nats); all parameters are trained, the model stays as it is.

    `ids` int64 [n] training tokens; `method` what the copy reads with while it trains (default: dense attention). A run
    that was stopped goes on from `checkpoint`. Errors: BadSetting for fewer tokens than two sequences, or a checkpoint
    of another run.
    """
    if len(ids) < 2 * plan.length:
        raise BadSetting(
            f"The corpus has {len(ids):,} tokens and two sequences need {2 * plan.length:,}: give more text."
        )
    tuned = replace(model, lm=copy.deepcopy(model.lm).float().requires_grad_(True), name=f"{model.name}, fine-tuned")
    parameters = dict(tuned.lm.named_parameters())
    optimiser = torch.optim.AdamW(parameters.values(), lr=plan.rate, betas=(0.9, 0.95), weight_decay=0.0)
    recipe, losses = asdict(plan) | {"model": model.revision, "corpus": corpus}, []
    if checkpoint.is_file():
        losses = load_checkpoint(checkpoint, parameters, (optimiser,), recipe)[0]["losses"]
    for step in range(len(losses), plan.steps):
        latest = f", loss {losses[-1]:.3f}" if losses else ""
        progress(step / plan.steps, f"model, step {step + 1} of {plan.steps}{latest}")
        losses.append(_step(tuned, parameters, optimiser, _windows(ids, plan, step), plan, step, method))
        if (step + 1) % KEEP_EVERY == 0 or step + 1 == plan.steps:
            save_checkpoint(checkpoint, parameters, (optimiser,), recipe, losses=losses)
    tuned.lm.requires_grad_(False)
    return tuned, losses


def _step(
    tuned: Model,
    parameters: dict,
    optimiser: torch.optim.Optimizer,
    windows: torch.Tensor,
    plan: Extension,
    step: int,
    method: Method | None,
) -> float:
    for group in optimiser.param_groups:
        group["lr"] = plan.rate_at(step)
    optimiser.zero_grad()
    total = 0.0
    read = apply(tuned, method, kernels=True) if method else contextlib.nullcontext()
    with rotary_base(tuned, plan.base), read:
        for window in windows.to(tuned.device):
            logits = tuned.lm(window[None], use_cache=False).logits[0, :-1].float()
            loss = F.cross_entropy(logits, window[1:]) / len(windows)
            loss.backward()
            total += loss.item()
    if not math.isfinite(total):
        raise BadSetting(f"The loss is no number any more at step {step + 1}: choose a smaller rate.")
    torch.nn.utils.clip_grad_norm_(parameters.values(), plan.clip)
    optimiser.step()
    return total


def _windows(ids: np.ndarray, plan: Extension, step: int) -> torch.Tensor:
    """The sequences of a step, int64 [n, length], a pure function of plan and step."""
    random = np.random.default_rng([plan.seed, step])
    starts = random.integers(0, len(ids) - plan.length + 1, max(1, plan.tokens_per_step // plan.length))
    return torch.as_tensor(np.stack([ids[start : start + plan.length] for start in starts])).long()
