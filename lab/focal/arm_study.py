"""A study that trains arms: what it can be asked for, what it stores of any of them, and the part that comes again."""

import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from analysis.corpus import token_stream
from analysis.studies.stored.runner import Seeds, Setting, Windows, option
from analysis.studies.text.held_out import held_out_windows, ids_hash, sample_windows
from analysis.training.checkpoints import read_log
from analysis.training.recipe import Recipe
from lab.focal.arms import SHARES, Arm, ArmTrainer, Pooled, trained_to

# Training steps of an arm that are stored for the bundled samples.
CHECKED = 4


class ArmStudy(Seeds, Windows):
    """A study that trains arms; the model lends its tokenizer alone."""

    length: int = option(512, "tokens in a sequence and in a window of text")
    steps: int = option(500, "steps of each training")
    tokens_per_step: int = option(2048, "tokens in one step of each training")
    rows: str | None = option(None, "only these rows, separated by commas (default: all)")

    # Words of `rows` where none are named.
    usual: ClassVar[tuple[str, ...]] = ()

    def named(self, word: str) -> list[Arm]:
        """The arms of a word of `rows`. Errors: BadSetting."""
        raise NotImplementedError

    def arms(self) -> list[Arm]:
        """The arms that `rows` names, each once. Errors: BadSetting."""
        words = [word.strip() for word in self.rows.split(",")] if self.rows else self.usual
        return list({arm.key: arm for word in words for arm in self.named(word)}.values())

    def checked(self, arms: list[Arm]) -> list[Arm]:
        """Those that are stored to be tried again without the corpus."""
        return arms[:2]

    def numbers(self, trained: dict[Arm, Pooled]) -> dict:
        """What is stored of trained arms."""
        raise NotImplementedError

    def measure(self, run: Setting) -> dict:
        arms = self.arms()
        # An arm that cannot be trained so is refused before the first one is.
        for arm in arms:
            arm.recipe(self.steps, self.tokens_per_step, self.length, self.seed)
        longest, longer = max(arm.context or 0 for arm in arms), None
        if longest > self.length:
            count = max(2, self.windows * self.length // longest)
            longer = held_out_windows(run.lm, run.texts[1], longest, count)
        sizes = {"steps": self.steps, "tokens_per_step": self.tokens_per_step, "longer": longer}
        trainer, trained = ArmTrainer.of(run, **sizes, expected=len(arms) * self.seeds), {}
        for arm in arms:
            parts = [trainer.measure(arm, seed) for seed in self.every_seed]
            trained[arm] = Pooled(arm, parts, trainer.read_by(arm)[1])
        for arm in arms:
            if arm.mean == "literal":
                causal = trained[arm].causal()
                trained[causal.arm] = causal
        kernel = "bfloat16 in training, torch dense on sharpened queries"
        about = {"training_tokens": self.steps * self.tokens_per_step, "kernel": kernel}
        checked = self.checked(arms)
        return self.numbers(trained) | {
            "windows": len(trainer.windows),
            "protocol": run.about(trainer.windows, **about),
            "arms": [asdict(arm) for arm in checked],
            "recipes": [asdict(trainer.recipe(arm, self.seed)) for arm in checked],
        }

    @staticmethod
    def again(stored: dict) -> Recipe:
        """A stored recipe; those of before there was a choice do not say that their sequences do not grow."""
        return Recipe(**{"growing": False} | stored)

    def sample(self, run: Setting, numbers: dict) -> dict:
        losses = {}
        for about, recipe in zip(numbers["arms"], numbers["recipes"], strict=True):
            arm = Arm(**about | {"limits": about["limits"] and tuple(about["limits"])})
            ids = np.append(sample_windows(run.lm, recipe["context"], 4).reshape(-1), 0)
            few = replace(self.again(recipe), steps=CHECKED, warm_up=1)
            with tempfile.TemporaryDirectory() as folder:
                trained_to(run.lm, arm, few, ids, Path(folder), CHECKED)
                losses[arm.name] = [read_log(Path(folder))[-1]["loss"]]
        return losses

    def part(self, run: Setting, numbers: dict) -> dict:
        # The first arm that was trained is the first that is stored to be tried again.
        name, recipe = numbers["curves"][0]["arm"], self.again(numbers["recipes"][0])
        first = min(point["step"] for point in numbers["curves"] if point["arm"] == name)
        arm = Arm(**numbers["arms"][0] | {"limits": None})
        with tempfile.TemporaryDirectory() as folder:
            ids = token_stream(run.lm.tokenizer, run.texts[0])
            # A logged loss is the mean since the last stop.
            for stop in sorted({min(first, round(share * recipe.steps)) for share in SHARES}):
                trained_to(run.lm, arm, recipe, ids, Path(folder), stop)
            losses = [row["loss"] for row in read_log(Path(folder)) if row["step"] == first]
        curves = [{"arm": name, "seed": 0, "step": first, "loss": loss} for loss in losses]
        return {"curves": curves, "protocol": {"text": ids_hash(run.windows)}}
