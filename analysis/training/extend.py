"""Fine-tuning a copy of a model that reads otherwise than it was trained to: texts longer than its context, with
another base of its rotary positions, or by a method in the place of dense attention."""

import contextlib
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch

from ..declaration import field, fields_of
from ..errors import BadSetting
from ..methods.base import Method
from ..models import Model
from ..probes.rotary import rotary_base
from ..seam.attention import apply
from .checkpoints import load_checkpoint, save_checkpoint
from .steps import add_gradients, copy_of, warmed

KEEP_EVERY = 10  # steps between checkpoints


@dataclass(frozen=True)
class Extension:
    """Everything that decides the weights: sequences of `length` tokens, positions with `base` (None: the model's own),
    AdamW at the peak `rate` with a linear warm-up and a cosine to 5%. Errors: BadSetting."""

    length: int = field(help="tokens of a sequence", low=2)
    base: float | None = None
    steps: int = field(200, "of training", low=1, high=1_000_000)
    tokens_per_step: int = field(8192, "of training", low=1)
    rate: float = field(1e-4, "learning rate", low=0, high=1)
    warm_up: int = 20
    clip: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for setting in fields_of(Extension):
            setting.check(getattr(self, setting.name), "a training")

    def windows(self, ids: np.ndarray, step: int) -> np.ndarray:
        """The sequences of a step, [n, length], a pure function of plan and step."""
        # One generator a step: a run that goes on reads what it would have read anyway.
        random = np.random.default_rng([self.seed, step])
        starts = random.integers(0, len(ids) - self.length + 1, max(1, self.tokens_per_step // self.length))
        return np.stack([ids[start : start + self.length] for start in starts])


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
    tuned = replace(copy_of(model), name=f"{model.name}, fine-tuned")
    parameters = dict(tuned.lm.named_parameters())
    optimiser = torch.optim.AdamW(parameters.values(), lr=plan.rate, betas=(0.9, 0.95), weight_decay=0.0)
    recipe = asdict(plan) | {"model": model.revision, "corpus": corpus}
    losses: list[float] = []
    if checkpoint.is_file():
        losses = load_checkpoint(checkpoint, parameters, (optimiser,), recipe)[0]["losses"]
    for step in range(len(losses), plan.steps):
        latest = f", loss {losses[-1]:.3f}" if losses else ""
        progress(step / plan.steps, f"model, step {step + 1} of {plan.steps}{latest}")
        optimiser.param_groups[0]["lr"] = plan.rate * warmed(step, plan.steps, plan.warm_up)
        optimiser.zero_grad()
        windows = plan.windows(ids, step)
        read = apply(tuned, method, kernels=True) if method else contextlib.nullcontext()
        with rotary_base(tuned, plan.base), read:
            losses.append(add_gradients(tuned, windows, len(windows)))
        if not math.isfinite(losses[-1]):
            raise BadSetting(f"The loss is no number any more at step {step + 1}: choose a smaller rate.")
        torch.nn.utils.clip_grad_norm_(parameters.values(), plan.clip)
        optimiser.step()
        if (step + 1) % KEEP_EVERY == 0 or step + 1 == plan.steps:
            save_checkpoint(checkpoint, parameters, (optimiser,), recipe, losses=losses)
    tuned.lm.requires_grad_(False)
    return tuned, losses
