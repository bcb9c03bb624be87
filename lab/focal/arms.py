"""Small models trained from scratch with a softmax temperature, resumably, and read at shares of their tokens: what the
studies of Focal Attention share.

Every arm is one model code, one start and one order of the training tokens per seed; the temperature alone differs, and
where an arm says so the norm or the optimiser.
"""

import contextlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from analysis.commands.training import TRAINED_AS_PRINTED
from analysis.corpus import text_hash
from analysis.files import clear, read_json, write_json, write_whole
from analysis.methods.base import Method
from analysis.methods.focal import Focal, FocalLearned, FocalWeights
from analysis.metrics.quality import perplexity
from analysis.models import Model, load_model
from analysis.seam.attention import apply
from analysis.studies.stored.trained import Trainer
from analysis.studies.text.held_out import ids_hash, make_folder
from analysis.training.checkpoints import read_log, save_checkpoint
from analysis.training.focal import watched
from analysis.training.pretrain import build_model, optimisers, trained
from analysis.training.recipe import Recipe
from lab.harness.small import pretrained

WIDTH, LAYERS, HEAD = 128, 4, 32
# A model that is adapted gets an 8th of the steps more, at a tenth of the rates.
FURTHER = 8
# Added to the seed that draws their texts.
OTHER_TEXTS = 1000
CHECKPOINT_SECONDS = 60.0  # between checkpoints
# Section 3.2, at the rate of the smallest model (table 4); its 2,000 steps of warm-up are of 100,000.
PRINTED = {name: TRAINED_AS_PRINTED[name] for name in ("optimiser", "weight_decay", "floor")}
PRINTED |= {"matrix_rate": 4e-3, "other_rate": 4e-3}
PRINTED_WARM_UP = 0.02
# Of the training tokens, at which a model is measured.
SHARES = (0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Arm:
    """A way to train: with the constant temperature `t` (1: dense), or with one that every layer learns between
    `limits`, in the paper's units for heads of 128, as the `mean` over the tokens so far or, literal, over the whole
    text. `norm`: queries and keys are normalised. `further`: an 8th of the steps more, on other texts, from the weights
    of dense training. `printed`: by AdamW as the paper prints it, instead of Muon. `context` None: the study's. Errors:
    BadSetting."""

    name: str
    t: float = 1.0
    limits: tuple[float, float] | None = None
    norm: bool = True
    further: bool = False
    width: int = WIDTH
    context: int | None = None
    mean: str = "prefix"
    printed: bool = False

    def __post_init__(self) -> None:
        if self.limits is None:
            Focal(t=self.t)
        else:
            FocalLearned(tau_min=self.limits[0], tau_max=self.limits[1])

    @property
    def dense(self) -> "Arm":
        """The arm that this one is held against: the same without a temperature."""
        return replace(self, t=1.0, limits=None, mean="prefix")

    @property
    def usual(self) -> bool:
        """Whether only its temperature sets it apart from dense training: with the norm, by Muon, from scratch."""
        return self.norm and not self.further and not self.printed

    @property
    def begins_others(self) -> bool:
        """Whether adapted arms begin with the weights of this one, which stay therefore."""
        return self == replace(self.dense, further=False, width=WIDTH, context=None)

    @property
    def key(self) -> tuple:
        """What the arm does, whatever it is called."""
        return tuple(asdict(replace(self, name="")).items())

    def method(self, recipe: Recipe, device: str) -> Method | None:
        """What a model of this arm is trained and read with; None for dense attention."""
        if self.limits is None:
            return None if self.t == 1 else Focal(t=self.t)
        weights = FocalWeights(recipe.layers, recipe.width).to(device)
        low, high = self.limits
        return FocalLearned(weights=weights, mean=self.mean, tau_min=low, tau_max=high)

    def recipe(self, steps: int, tokens_per_step: int, context: int, seed: int) -> Recipe:
        """How a model of this arm is trained. Errors: BadSetting."""
        heads = self.width // HEAD
        recipe = Recipe(
            growing=False,
            family="llama" if self.norm else "llama_plain",
            attention="dense" if self.limits is None and self.t == 1 else "focal",
            seed=seed,
            steps=steps,
            warm_up=min(50, steps // 4),
            width=self.width,
            heads=heads,
            kv_heads=heads,
            intermediate=3 * self.width,
            layers=LAYERS,
            context=self.context or context,
            tokens_per_step=tokens_per_step,
        )
        if self.printed:
            recipe = replace(recipe, **PRINTED, warm_up=round(PRINTED_WARM_UP * steps))
        if not self.further:
            return recipe
        steps = max(4, steps // FURTHER)
        return replace(
            recipe,
            steps=steps,
            warm_up=min(10, steps // 4),
            seed=seed + OTHER_TEXTS,
            matrix_rate=recipe.matrix_rate / 10,
            other_rate=recipe.other_rate / 10,
            floor=1.0,
        )


def trained_to(
    lm: Model,
    arm: Arm,
    recipe: Recipe,
    ids: np.ndarray,
    folder: Path,
    stop: int,
    report: Callable[[float, str], None] = lambda fraction, stage: None,
) -> tuple[Any, Method | None]:
    """(transformers model, method or None) of an arm after `stop` steps on the tokens `ids`."""
    more = {"evaluate_every": recipe.steps, "checkpoint_seconds": CHECKPOINT_SECONDS, "made_with": arm.method}
    return pretrained(lm, recipe, ids, ids[: recipe.context], folder, stop_at=stop, report=report, **more)


def read(lm: Model, model: Any, method: Method | None, windows: np.ndarray) -> tuple[list[float], list[float] | None]:
    """(nats per token of each window, mean temperature of each layer where it is learned) of a trained model."""
    model_of, length = load_model(model.eval(), tokenizer=lm.tokenizer), windows.shape[1]
    if isinstance(method, FocalLearned):
        losses, temperature = watched(model_of, method, windows.reshape(-1), length)
    else:
        with apply(model_of, method, kernels=True) if method else contextlib.nullcontext():
            losses, temperature = perplexity(model_of, windows.reshape(-1), length).losses, None
    model.train()
    return [round(loss, 6) for loss in losses.astype(np.float64).mean(1).tolist()], temperature


def gains(model: torch.nn.Module) -> float | None:
    """What the norms of queries and keys multiply the scores with, mean over layers and dimensions; it begins at 1."""
    named, products = dict(model.named_parameters()), []
    for name, p in named.items():
        if name.endswith("q_norm.weight"):
            products.append(p * named[name.replace("q_norm", "k_norm")])
    return float(torch.stack(products).detach().mean()) if products else None


@dataclass(frozen=True)
class Pooled:
    """An arm with its seeds together: `parts` as `ArmTrainer.measure` gives them, one per seed; `documents` [n] says
    which document each of its windows is of."""

    arm: Arm
    parts: list[dict]
    documents: np.ndarray

    def means(self, at: int = -1) -> np.ndarray:
        """Nats per token of each window at a checkpoint [seeds, n]."""
        return np.array([part["checkpoints"][at]["means"] for part in self.parts])

    def causal(self) -> "Pooled":
        """What was trained with the mean over the whole text, read with that over the tokens so far."""
        parts = []
        for part in self.parts:
            parts.append(
                part
                | {"checkpoints": [checkpoint | {"means": checkpoint["prefix"]} for checkpoint in part["checkpoints"]]}
            )
        return replace(self, arm=replace(self.arm, name=f"{self.arm.name}, read with prefix means"), parts=parts)

    def tokens(self, at: int = -1) -> int:
        """Training tokens seen at a checkpoint."""
        return self.parts[0]["checkpoints"][at]["tokens"]

    def mean(self, name: str) -> float | None:
        """The mean over seeds, and layers, of what a part holds under this name; None where it has none."""
        values = [part[name] for part in self.parts if part[name] is not None]
        return float(np.mean(values)) if values else None


@dataclass(kw_only=True)
class ArmTrainer(Trainer):
    """Trains arms from scratch. Arms of a shorter context read the same windows, cut; arms of a longer one `longer`,
    others of as many tokens."""

    steps: int
    tokens_per_step: int
    longer: tuple[np.ndarray, np.ndarray] | None = None

    def recipe(self, arm: Arm, seed: int) -> Recipe:
        """How an arm is trained here."""
        return arm.recipe(self.steps, self.tokens_per_step, self.windows.shape[1], seed)

    def read_by(self, arm: Arm) -> tuple[np.ndarray, np.ndarray]:
        """The windows that an arm reads, at the study's context or its own longer or shorter one [n, T], and which
        document each is of [n]."""
        length = self.windows.shape[1]
        context = arm.context or length
        if context > length:
            assert self.longer is not None
            return self.longer
        pieces = length // context
        return self.windows[:, : pieces * context].reshape(-1, context), np.repeat(self.units, pieces)

    def measure(self, arm: Arm, seed: int) -> dict:
        """`parameters`; `checkpoints`, after every share of the steps `tokens` seen and `means`, nats per token of each
        window; `curve` of the training (`step loss`); `gains` of the norms of queries and keys, multiplied, mean over
        layers (None without); `temperature` of each layer beside dense attention where it is learned, else None."""
        recipe = self.recipe(arm, seed)
        place = self.place(arm, recipe)
        if arm.begins_others and not place.with_suffix(".safetensors").is_file():
            clear(place)
        return self.part("focal", self._decides(arm, recipe), lambda doing: self._train(arm, recipe, seed, doing))

    def place(self, arm: Arm, recipe: Recipe) -> Path:
        """The file of what an arm measured; its weights lie beside it, where others begin with them."""
        return self.work / f"focal-{text_hash(repr(self._decides(arm, recipe)))}.json"

    def _decides(self, arm: Arm, recipe: Recipe) -> list:
        decides = [self.lm.revision, self.texts, ids_hash(self.read_by(arm)[0]), asdict(recipe), arm.key]
        return [*decides, self.steps] if arm.further else decides

    def _train(self, arm: Arm, recipe: Recipe, seed: int, folder: Path) -> dict:
        make_folder(folder)
        if arm.further and not (folder / "checkpoint.safetensors").exists():
            self._begin(arm, recipe, seed, folder)
        report, windows = self.within(f"{arm.name}, seed {seed}").progress, self.read_by(arm)[0]
        measured = read_json(folder / "measured.json") or {}
        for share in (1.0,) if arm.further else SHARES:
            # The last share gives the model itself and is read again.
            if share < 1 and f"{share:g}" in measured:
                continue
            stop = round(share * recipe.steps)
            model, method = trained_to(self.lm, arm, recipe, self.ids, folder, stop, report)
            means, temperature = read(self.lm, model, method, windows)
            tokens = (stop + self.steps * arm.further) * recipe.tokens_per_step
            measured[f"{share:g}"] = {"tokens": tokens, "means": means}
            if isinstance(method, FocalLearned) and arm.mean == "literal":
                measured[f"{share:g}"]["prefix"] = read(self.lm, model, replace(method, mean="prefix"), windows)[0]
            write_json(folder / "measured.json", measured)
        if arm.begins_others:
            with write_whole(folder.with_suffix(".safetensors")) as place:
                save_file({name: p.detach().contiguous() for name, p in model.named_parameters()}, place)
        log = read_log(folder)
        return {
            "parameters": sum(p.numel() for p in model.parameters()),
            "checkpoints": list(measured.values()),
            "curve": [{"step": row["step"], "loss": row["loss"]} for row in log if "loss" in row],
            "gains": gains(model),
            "temperature": temperature,
            "seconds": log[-1]["seconds"],
        }

    def _begin(self, arm: Arm, recipe: Recipe, seed: int, folder: Path) -> None:
        """The checkpoint from which an adapted model starts: weights of dense training, optimisers that are new."""
        base = replace(arm.dense, name="dense", further=False)
        self.done -= 1
        self.measure(base, seed)
        model = build_model(recipe, len(self.lm.tokenizer))
        weights = load_file(self.place(base, self.recipe(base, seed)).with_suffix(".safetensors"))
        model.load_state_dict(weights, strict=False)  # tied weights are saved once
        parameters = trained(model, arm.method(recipe, "cpu"))
        place, opts = folder / "checkpoint.safetensors", optimisers(parameters, recipe)
        save_checkpoint(place, parameters, opts, asdict(recipe), step=0, seconds=0.0)
