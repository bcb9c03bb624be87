"""Training the arms of the studies of Focal Attention, resumably, and reading them at shares of their tokens."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from analysis.corpus import text_hash
from analysis.files import read_json, write_json
from analysis.studies.stored.runner import Setting, Windows, option
from analysis.studies.stored.trainer import Trainer
from analysis.studies.temperature.arms import WIDTH, Arm, Fixed, gains, read, trained_to
from analysis.studies.temperature.rows import Pooled
from analysis.studies.text.held_out import held_out_windows, ids_hash, make_folder
from analysis.training.checkpoints import read_log, save_checkpoint
from analysis.training.pretrain import build_model, optimisers, trained

SEEDS = 2
SHARES = (0.25, 0.5, 0.75, 1.0)  # of the training tokens, at which a model is measured


@dataclass(frozen=True)
class Sizes(Windows):
    """What the studies of Focal Attention can be asked for; the model lends its tokenizer alone."""

    length: int = option(512, "tokens of a sequence and of a window of text")
    steps: int = option(500, "of every training")
    tokens_per_step: int = option(2048, "of every training")
    rows: str | None = option(None, "only these rows, joined by commas (default: all)")


@dataclass(kw_only=True)
class ArmTrainer(Trainer):
    """Trains arms from scratch. Arms of a shorter context read the same windows, cut; arms of a longer one `longer`,
    others of as many tokens."""

    longer: np.ndarray | None
    steps: int
    tokens_per_step: int

    @classmethod
    def of(cls, at: Setting, arms: list[Arm]) -> "ArmTrainer":
        """For all arms at every seed. Errors: BadSetting, also for an arm that cannot be trained so."""
        sizes, longest = at.sizes, max(arm.context or 0 for arm in arms)
        for arm in arms:
            arm.recipe(sizes.steps, sizes.tokens_per_step, sizes.length, sizes.seed)
        windows, longer = at.windows, None
        if longest > sizes.length:
            count = max(2, sizes.windows * sizes.length // longest)
            longer = held_out_windows(at.lm, at.texts[1], longest, count)
        return cls(
            lm=at.lm,
            documents=at.texts[0],
            windows=windows,
            work=at.work,
            context=at.context,
            expected=len(arms) * SEEDS,
            longer=longer,
            steps=sizes.steps,
            tokens_per_step=sizes.tokens_per_step,
        )

    def recipe(self, arm: Arm, seed: int) -> Fixed:
        """How an arm is trained here."""
        return arm.recipe(self.steps, self.tokens_per_step, self.windows.shape[1], seed)

    def read_by(self, arm: Arm) -> np.ndarray:
        """The windows that an arm reads, at the study's context or its own longer one [n, T]."""
        return self.windows if (arm.context or 0) <= self.windows.shape[1] else self.longer

    def measure(self, arm: Arm, seed: int) -> dict:
        """`parameters`; `checkpoints`, after every share of the steps `tokens` seen and `means`, nats per token of each
        window; `curve` of the training (`step loss`); `gains` of the norms of queries and keys, multiplied, mean over
        layers (None without); `temperature` of each layer beside dense attention where it is learned, else None."""
        recipe = self.recipe(arm, seed)
        place = self._place(arm, recipe)
        if _kept(arm) and not place.with_suffix(".safetensors").is_file():
            place.unlink(missing_ok=True)  # another arm begins with these weights

        return self.part("focal", self._decides(arm, recipe), lambda doing: self._train(arm, recipe, seed, doing))

    def _decides(self, arm: Arm, recipe: Fixed) -> list:
        more = [self.steps] if arm.further else []
        return [self.lm.revision, self.texts, ids_hash(self.read_by(arm)), asdict(recipe), arm.key, *more]

    def _place(self, arm: Arm, recipe: Fixed) -> Path:
        return self.work / f"focal-{text_hash(repr(self._decides(arm, recipe)))}.json"

    def _train(self, arm: Arm, recipe: Fixed, seed: int, folder: Path) -> dict:
        before = self.steps if arm.further else 0
        make_folder(folder)
        if arm.further and not (folder / "checkpoint.safetensors").exists():
            self._begin(arm, recipe, seed, folder)
        measured = read_json(folder / "measured.json") or {}
        for share in (1.0,) if arm.further else SHARES:
            if share < 1 and f"{share:g}" in measured:
                continue
            stop = round(share * recipe.steps)
            name = f"{arm.name}, seed {seed}"
            model, method = trained_to(self.lm, arm, recipe, self.ids, folder, stop, self.told(name))
            means, temperature = read(self.lm, model, method, self.read_by(arm).reshape(-1, recipe.context))
            measured[f"{share:g}"] = {"tokens": (before + stop) * recipe.tokens_per_step, "means": means}
            write_json(folder / "measured.json", measured)
        if _kept(arm):
            weights = {name: p.detach().contiguous() for name, p in model.named_parameters()}
            save_file(weights, folder.with_suffix(".safetensors"))
        return {
            "parameters": sum(p.numel() for p in model.parameters()),
            "checkpoints": list(measured.values()),
            "curve": [{"step": row["step"], "loss": row["loss"]} for row in read_log(folder) if "loss" in row],
            "gains": gains(model),
            "temperature": temperature,
            "seconds": read_log(folder)[-1]["seconds"],
        }

    def _begin(self, arm: Arm, recipe: Fixed, seed: int, folder: Path) -> None:
        """The checkpoint from which an adapted model starts: weights of dense training, optimisers that are new."""
        base = replace(arm.dense, name="dense", further=False)
        self.done -= 1
        self.measure(base, seed)
        weights = load_file(self._place(base, self.recipe(base, seed)).with_suffix(".safetensors"))
        model = build_model(recipe, len(self.lm.tokenizer))
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.copy_(weights[name])
        parameters = trained(model, arm.method(recipe, "cpu"))
        opts = optimisers(parameters, recipe)
        save_checkpoint(folder / "checkpoint.safetensors", parameters, opts, asdict(recipe), step=0, seconds=0.0)


def _kept(arm: Arm) -> bool:
    """Whether the weights stay, because another arm begins with them."""
    return arm == replace(arm.dense, further=False, width=WIDTH, context=None)


def train_arms(at: Setting, arms: list[Arm], checking: list[Arm]) -> tuple[dict[Arm, Pooled], dict]:
    """Every arm trained and read at both seeds, and what is stored of how: `windows`, `protocol`, and the `arms` of
    `checking` with their `recipes`, which can be tried again without the corpus. Errors: BadSetting, BadText."""
    trainer, sizes = ArmTrainer.of(at, arms), at.sizes
    seeds = range(sizes.seed, sizes.seed + SEEDS)
    found = {arm: Pooled(arm, [trainer.measure(arm, seed) for seed in seeds]) for arm in arms}
    told = at.about(
        trainer.windows,
        steps=sizes.steps,
        training_text=trainer.texts,
        training_tokens=sizes.steps * sizes.tokens_per_step,
        kernel="bfloat16 in training, torch dense on sharpened queries",
    )
    return found, {
        "windows": len(trainer.windows),
        "protocol": told,
        "arms": [asdict(arm) for arm in checking],
        "recipes": [asdict(trainer.recipe(arm, sizes.seed)) for arm in checking],
    }
