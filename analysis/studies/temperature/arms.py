"""Small models trained from scratch with a softmax temperature: what the studies of Focal Attention share.

Every arm is one model code, one start and one order of the training tokens per seed; the temperature alone differs.
"""

import contextlib
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from analysis.attention import apply
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.methods.focal_learned import FocalWeights
from analysis.metrics.quality import perplexity
from analysis.models import Model, load_model
from analysis.studies.stored.runner import Setting
from analysis.studies.text.held_out import sample_windows
from analysis.training.checkpoints import read_log
from analysis.training.focal import watched
from analysis.training.pretrain import Recipe, train

WIDTH, LAYERS, HEAD = 128, 4, 32
FURTHER = 8  # a model that is adapted gets an 8th of the steps more, at a tenth of the rates
OTHER = 1000  # added to the seed that draws their texts
KEPT_EVERY = 60.0  # seconds between checkpoints
CHECKED = 4  # training steps of an arm that are stored for the bundled samples


class Fixed(Recipe):
    """A recipe whose sequences have the full context from the first step."""

    def phases(self) -> list[tuple[int, int, int]]:
        return [(0, self.steps, self.context)]


@dataclass(frozen=True)
class Arm:
    """A way to train: with the constant temperature `t` (1: dense), or with one that every layer learns between
    `limits`, in the paper's units for heads of 128. `norm`: queries and keys are normalised. `further`: an 8th of the
    steps more, on other texts, from the weights of dense training. `context` None: the study's. Errors: BadSetting."""

    name: str
    t: float = 1.0
    limits: tuple[float, float] | None = None
    norm: bool = True
    further: bool = False
    width: int = WIDTH
    context: int | None = None

    def __post_init__(self) -> None:
        if self.limits is None:
            METHODS["focal"](t=self.t)
        else:
            METHODS["focal_learned"](tau_min=self.limits[0], tau_max=self.limits[1])

    @property
    def dense(self) -> "Arm":
        """The arm that this one is held against: the same without a temperature."""
        return replace(self, t=1.0, limits=None)

    @property
    def key(self) -> tuple:
        """What the arm does, whatever it is called."""
        return tuple(asdict(replace(self, name="")).items())

    def method(self, recipe: Recipe, device: str) -> Method | None:
        """What a model of this arm is trained and read with; None for dense attention."""
        if self.limits is not None:
            weights = FocalWeights(recipe.layers, recipe.width).to(device)
            low, high = self.limits
            return METHODS["focal_learned"](weights=weights, tau_min=low, tau_max=high)
        return None if self.t == 1 else METHODS["focal"](t=self.t)

    def recipe(self, steps: int, tokens_per_step: int, context: int, seed: int) -> Fixed:
        """How a model of this arm is trained. Errors: BadSetting."""
        made = Fixed(
            family="llama" if self.norm else "llama_plain",
            attention="dense" if self.limits is None and self.t == 1 else "focal",
            steps=steps, context=self.context or context, tokens_per_step=tokens_per_step,
            warm_up=min(50, steps // 4), layers=LAYERS, width=self.width, heads=self.width // HEAD,
            kv_heads=self.width // HEAD, intermediate=3 * self.width, seed=seed,
        )  # fmt: skip
        if not self.further:
            return made
        steps = max(4, steps // FURTHER)
        rates = {"matrix_rate": made.matrix_rate / 10, "other_rate": made.other_rate / 10, "floor": 1.0}
        return replace(made, steps=steps, warm_up=min(10, steps // 4), seed=seed + OTHER, **rates)


def trained_to(
    lm: Model,
    arm: Arm,
    recipe: Fixed,
    ids: np.ndarray,
    folder: Path,
    stop: int,
    told: Callable[[float, str], None] | None = None,
) -> tuple:
    """(transformers model, method or None) of an arm after `stop` steps on the tokens `ids`."""
    size = {"tokens": recipe.context, "bytes": recipe.context}
    about = {"vocabulary": len(lm.tokenizer), "domains": {"text": {"share": 1.0, "valid": size}}}
    return train(
        recipe, {"text": ids}, {"text": ids[: recipe.context]}, about, folder, str(lm.device),
        evaluate_every=recipe.steps, checkpoint_seconds=KEPT_EVERY, stop_at=stop,
        report=(lambda done, stage: told(done, "training")) if told else lambda done, stage: None,
        made_with=arm.method,
    )  # fmt: skip


def read(lm: Model, model: Any, method: Method | None, windows: np.ndarray) -> tuple[list[float], list[float] | None]:
    """(nats per token of each window, mean temperature of each layer where it is learned) of a trained model."""
    own = load_model(model.eval(), tokenizer=lm.tokenizer)
    length = windows.shape[1]
    if method is not None and method.addon() is not None:
        losses, temperature = watched(own, method, windows.reshape(-1), length)
    else:
        with apply(own, method, kernels=True) if method else contextlib.nullcontext():
            losses, temperature = perplexity(own, windows.reshape(-1), length).losses, None
    model.train()
    return [round(loss, 6) for loss in losses.astype(np.float64).mean(1).tolist()], temperature


def gains(model: torch.nn.Module) -> float | None:
    """What the norms of queries and keys multiply the scores with, mean over layers and dimensions; it begins at 1."""
    named = dict(model.named_parameters())
    found = [p * named[name.replace("q_norm", "k_norm")] for name, p in named.items() if name.endswith("q_norm.weight")]
    return float(torch.stack(found).detach().mean()) if found else None


def sample(at: Setting, numbers: dict) -> dict[str, list[float]]:
    """Mean training loss of the first steps of the stored arms on the bundled samples."""
    found = {}
    for about, recipe in zip(numbers["arms"], numbers["recipes"], strict=True):
        arm = Arm(**about | {"limits": about["limits"] and tuple(about["limits"])})
        ids = np.append(sample_windows(at.lm, recipe["context"], 4).reshape(-1), 0)
        few = replace(Fixed(**recipe), steps=CHECKED, warm_up=1)
        with tempfile.TemporaryDirectory() as folder:
            trained_to(at.lm, arm, few, ids, Path(folder), CHECKED)
            found[arm.name] = [read_log(Path(folder))[-1]["loss"]]
    return found
