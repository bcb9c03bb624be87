"""Long-context tasks asked of models trained with a softmax temperature (Focal Attention, figures 5 to 7).

Copies of the model are trained further, with the temperature and, to hold it against, without, and asked the generated
long-context tasks as they were trained: labels from examples stand for in-context learning, one code among several for
retrieval augmented generation, the mark of a quoted passage for citations, the other tasks for recall.
"""

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from analysis.errors import BadSetting
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.models import Model
from analysis.studies.stored.comparisons import holm_corrected, interval_caveat
from analysis.studies.stored.panels import presented
from analysis.studies.stored.runner import Seeds, Setting, Study, Windows, option
from analysis.studies.stored.trained import TRAINED, Trainer
from analysis.studies.text.held_out import check_range, ids_hash, sample_windows
from analysis.studies.training.finetune_tasks import questions
from analysis.training.extend import Extension, extend
from lab.harness.telling import concluded
from lab.tuning.read_copies import by_length, means, read, task_rows, text_row

CONTROL, KEY = "dense, further", "against_dense"  # the copy that the others are held against
BEST = 0.4  # temperature of the paper


@dataclass(frozen=True)
class Sizes(Seeds, Windows):
    """What the study can be asked for."""

    temperature: float = option(BEST, "softmax temperature of the one copy; the other has none")
    length: int = option(1024, "tokens in a training sequence and in a window of text")
    windows: int = option(16, "held-out windows of text")
    lengths: list[int] | None = option(None, "tokens of a prompt (default: 512, and the longest that the model reads)")
    items: int = option(32, "questions of each task and length")
    steps: int = option(300, "steps of both trainings")
    tokens_per_step: int = option(4096, "tokens in one step of both trainings")
    rate: float = option(3e-4, "learning rate of both trainings")

    def check(self, lm: Model) -> None:
        super().check(lm)
        METHODS["focal"](t=self.temperature)
        if self.temperature == 1:
            raise BadSetting("A temperature of 1 is dense attention, which is trained beside it: choose another one.")
        check_range("The number of questions", self.items, 2, 1024)
        for length in self.lengths or ():
            check_range("The length of a prompt", length, 64, lm.max_positions)

    def prompts(self, lm: Model) -> list[int]:
        """The lengths of the prompts."""
        return sorted(set(self.lengths or (min(512, lm.max_positions), lm.max_positions)))


def measure(run: Setting) -> dict:
    """Copies of the model trained further with a softmax temperature and without, on the same sequences, then asked the
    generated tasks, each as it was trained. Errors: BadSetting, BadText.
    """
    lm, sizes = run.lm, run.sizes
    prompts = {length: questions(lm, length, sizes.items, sizes.seed) for length in sizes.prompts(lm)}
    if not any(prompts.values()):
        raise BadSetting("No task fits prompts so short: choose longer ones.")
    arms = {CONTROL: None, f"t {sizes.temperature:g}, further": METHODS["focal"](t=sizes.temperature)}
    trainer = Trainer.of(run, expected=len(arms) * sizes.seeds + 1)
    decides = [lm.revision, trainer.texts, ids_hash(trainer.windows), {run: list(one) for run, one in prompts.items()}]
    decides += [sizes.items, sizes.seed]
    own = trainer.part("focal-tasks", decides, lambda _: read(trainer, lm, None, prompts, "the model as it is"))
    copies = {"as it is": [own]}
    for name, method in arms.items():
        plans = [_plan(sizes, seed) for seed in sizes.every_seed]
        copies[name] = [
            trainer.part(
                "focal-tasks", [*decides, name, asdict(plan)], partial(_one, trainer, name, method, plan, prompts)
            )
            for plan in plans
        ]
    about = {"steps": sizes.steps, "rate": sizes.rate, "seeds": sizes.seeds, "training_text": trainer.texts}
    about |= {"kernel": "torch dense on sharpened queries", "plan": asdict(_plan(sizes, sizes.seed))}
    return {
        "rows": task_rows(copies, CONTROL, list(prompts), KEY),
        "cells": [{"length": length} | row for length in prompts for row in task_rows(copies, CONTROL, [length], KEY)],
        "texts": [text_row(parts, copies[CONTROL], name, trainer.units, KEY) for name, parts in copies.items()],
        "temperature": sizes.temperature,
        "protocol": run.about(trainer.windows, **about),
    }


def shown(numbers: dict) -> dict:
    """What a temperature does to the tasks that the copy without it can do, and to the text."""
    rows, text, seeds = numbers["rows"], numbers["texts"][-1], numbers["protocol"]["seeds"]
    able = {row["task"] for row in rows if row["model"].startswith("dense") and row["score_low"] > row["chance"]}
    sharp = [row for row in rows if row["model"].startswith("t ")]
    *tasks, text = holm_corrected([*(row for row in sharp if row["task"] in able), text], KEY)
    sentence = "No task is above chance without a temperature, so none is judged."
    if tasks:
        lead = f"Right answers with {text['model'].removesuffix(', further')} against training as far without: "
        name = "{task} ({family})".format_map
        sentence = concluded(lead, tasks, {KEY: ""}, name, unit="points", words=("fewer", "more"))
        unable = [row["task"] for row in sharp if row["task"] not in able]
        sentence += f" At chance without a temperature, and so not judged: {', '.join(unable)}." if unable else ""
    losses = concluded(" ", [text], {KEY: ""}, lambda row: "Held-out loss", seeds, "model", words=("lower", "higher"))
    return presented(
        "focal-tasks", sentence + losses, by_length(numbers["cells"]), interval_caveat(numbers["protocol"])
    )


def sample(run: Setting, numbers: dict) -> dict[str, float]:
    """Loss of two windows of the bundled samples, dense and sharpened."""
    ids = sample_windows(run.lm, min(256, run.lm.max_positions))
    methods = {"dense": None, "sharpened": METHODS["focal"](t=numbers["temperature"])}
    return {name: float(means(run.lm, method, ids).mean()) for name, method in methods.items()}


def part(run: Setting, numbers: dict) -> dict:
    """The model as it is on all held-out windows; the copies are not kept."""
    perplexity = float(np.exp(means(run.lm, None, run.windows).mean()))
    return {"texts": [{"model": "as it is", "perplexity": perplexity}], "protocol": {"text": ids_hash(run.windows)}}


def _plan(sizes: Sizes, seed: int) -> Extension:
    warm_up = min(20, sizes.steps // 4)
    return Extension(sizes.length, None, sizes.steps, sizes.tokens_per_step, sizes.rate, warm_up, seed=seed)


def _one(trainer: Trainer, name: str, method: Method | None, plan: Extension, prompts: dict, doing: Path) -> dict:
    """Train one copy and read it."""
    label, place = f"{name}, seed {plan.seed}", doing / "training.checkpoint"
    report = trainer.told(label, TRAINED)
    copy, _ = extend(trainer.lm, trainer.ids, plan, place, report, trainer.texts, method)
    return read(trainer, copy, method, prompts, label, TRAINED)


focal_tasks = Study(
    "focal-tasks", __doc__.splitlines()[0], Sizes, measure, shown, sample, tables=("rows", "cells", "texts"), part=part
)
