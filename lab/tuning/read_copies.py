"""What copies of a model that were trained further find in generated tasks and in held-out text, beside each other."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from analysis.errors import BadSetting
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.metrics.proportions import share
from analysis.metrics.quality import perplexity
from analysis.models import Model
from analysis.probes.tasks import TASKS
from analysis.seam.attention import apply
from analysis.studies.stored.comparisons import Row, compared, difference, edges
from analysis.studies.stored.runner import Seeds, Setting, Windows
from analysis.studies.stored.trained import Trainer
from analysis.studies.text.held_out import ids_hash
from analysis.studies.training.finetune_rows import apart
from analysis.studies.training.finetune_tasks import CHOICES, answers, questions

AS_IT_IS = "as it is"


class CopyStudy(Seeds, Windows):
    """A study of copies that are trained further; `key` is that of their comparisons with one of them."""

    key: ClassVar[str]

    def part(self, run: Setting, numbers: dict) -> dict:
        level = float(np.exp(means(run.lm, None, run.windows).mean()))
        return {"texts": [{"model": AS_IT_IS, "perplexity": level}], "protocol": {"text": ids_hash(run.windows)}}


@dataclass(kw_only=True)
class Reader(Trainer):
    """Trains copies and asks them the questions of every task, in prompts of these lengths; `copies`: name -> what one
    of every seed read."""

    name: str
    items: int
    seed: int
    lengths: list[int]
    copies: dict[str, list[dict]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.prompts = {length: questions(self.lm, length, self.items, self.seed) for length in self.lengths}
        if not any(self.prompts.values()):
            raise BadSetting("No task fits prompts so short: choose longer ones.")

    def add(self, name: str, decides: list, make: Callable[[Path], dict]) -> None:
        """What `make` reads, one seed of a copy; `decides`: how it was trained."""
        tasks_by_length = {length: list(tasks) for length, tasks in self.prompts.items()}
        about = [self.lm.revision, self.texts, ids_hash(self.windows), tasks_by_length, self.items, self.seed, *decides]
        self.copies.setdefault(name, []).append(self.part(self.name, about, make))

    def read(self, lm: Model, method: Method | None, name: str, began: float = 0.0) -> dict:
        """`means`, nats per token of each held-out window; `tasks`, by length task -> scores of its items. `began`: the
        part of the work that is done."""
        report = self.within(name, 1 - began, began).progress
        report(0.0, "held-out windows")
        losses, tasks = [round(float(loss), 6) for loss in means(lm, method, self.windows)], {}
        for length, items in self.prompts.items():
            stage = partial(report, 0.5)
            tasks[str(length)] = answers(lm, method or METHODS["dense"](), items, stage)
        return {"means": losses, "tasks": tasks}

    def task_rows(self, control: str, lengths: list[int], key: str) -> list[Row]:
        """A row for every task and copy: `task family model score score_low score_high chance items`, and `KEY`, the
        share of items right minus that of the copy named `control`. A task that no prompt of these lengths holds has
        none."""
        rows = []
        for task in TASKS:
            theirs = _right(self.copies[control], task, lengths)
            for name, parts in self.copies.items():
                right = _right(parts, task, lengths)
                if right.size:
                    row = {"task": TASKS[task].title, "family": TASKS[task].family, "model": name}
                    row |= edges("score", share(right.mean(0))) | {"chance": 1 / CHOICES, "items": right.shape[1]}
                    rows.append(row | compared(key, apart(right, theirs if len(right) > 1 else theirs.mean(0))))
        return rows

    def text_rows(self, control: str, key: str) -> list[Row]:
        """The held-out text as each copy reads it: `model perplexity`, and `KEY`, nats per token above the control."""
        rows = []
        theirs = np.array([part["means"] for part in self.copies[control]])
        for name, parts in self.copies.items():
            losses = np.array([part["means"] for part in parts])
            beside = theirs if len(losses) == len(theirs) else theirs.mean(0)
            row = {"model": name, "perplexity": float(np.exp(losses.mean()))}
            rows.append(row | difference(key, losses, beside, self.units))
        return rows


def means(lm: Model, method: Method | None, windows: np.ndarray) -> np.ndarray:
    """Nats per token of each window [n]."""
    with apply(lm, method or METHODS["dense"](), kernels=True):
        return perplexity(lm, windows.reshape(-1), windows.shape[1]).losses.astype(np.float64).mean(1)


def _right(parts: list[dict], task: str, lengths: list[int]) -> np.ndarray:
    """Scores of the items of a task at these lengths [seeds, items]."""
    scores: list[list[Any]] = []
    for part in parts:
        scores.append(sum((part["tasks"][str(length)].get(task, []) for length in lengths), []))
    return np.array(scores)
