"""What copies of a model that were trained further find in generated tasks and in held-out text, beside each other."""

from collections.abc import Callable
from functools import partial

import numpy as np

from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.metrics.proportions import share
from analysis.metrics.quality import perplexity
from analysis.models import Model
from analysis.probes.tasks import TASKS
from analysis.seam.attention import apply
from analysis.studies.stored.comparisons import compared, difference, edges
from analysis.studies.stored.panels import of_rows, panel
from analysis.studies.stored.trained import Trainer
from analysis.studies.training.finetune_rows import apart
from analysis.studies.training.finetune_tasks import CHOICES, answers

FAMILIES = {
    "labels": "in-context learning",
    "several_needles": "retrieval augmented",
    "passages": "citations",
}  # the others are recall


def read(
    trainer: Trainer, lm: Model, method: Method | None, prompts: dict[int, dict], name: str, began: float = 0.0
) -> dict:
    """`means`, nats per token of each held-out window; `tasks`, by length task -> scores of its items. `asked`: the
    items of every task by the length of their prompts; `began`: the part of the work that is done."""
    report = trainer.told(name, 1 - began, began)
    report(0.0, "held-out windows")
    losses = [round(float(one), 6) for one in means(lm, method, trainer.windows)]
    tasks = {
        str(length): answers(
            lm, method or METHODS["dense"](), items, partial(_stage, report, at / len(prompts), length)
        )
        for at, (length, items) in enumerate(prompts.items())
    }
    return {"means": losses, "tasks": tasks}


def means(lm: Model, method: Method | None, windows: np.ndarray) -> np.ndarray:
    """Nats per token of each window [n]."""
    with apply(lm, method or METHODS["dense"](), kernels=True):
        return perplexity(lm, windows.reshape(-1), windows.shape[1]).losses.astype(np.float64).mean(1)


def task_rows(copies: dict[str, list[dict]], control: str, lengths: list[int], key: str) -> list[dict]:
    """A row for every task and model, as it was `read` for every seed: `task family model score score_low score_high
    chance items`, and `KEY`, the share of items right minus that of the model named `control`. A task that no prompt of
    these lengths holds has none."""
    return [
        row
        for task in TASKS
        for name, parts in copies.items()
        for row in _row(_right(parts, task, lengths), _right(copies[control], task, lengths), name, task, key)
    ]


def text_row(parts: list[dict], control: list[dict], name: str, documents: np.ndarray, key: str) -> dict:
    """The held-out text as a model reads it: `model perplexity`, and `KEY`, nats per token above the control's."""
    losses, theirs = (np.array([part["means"] for part in side]) for side in (parts, control))
    theirs = theirs if len(losses) == len(theirs) else theirs.mean(0)
    return {"model": name, "perplexity": float(np.exp(losses.mean()))} | difference(key, losses, theirs, documents)


def by_length(cells: list[dict]) -> list[dict]:
    """Panels of `task_rows` rows that have a `length`: each task's share of right answers by the length of the prompt,
    a line for every model."""
    names = list(dict.fromkeys(row["model"] for row in cells))
    charts = []
    for task in dict.fromkeys(row["task"] for row in cells):
        points = [row for row in cells if row["task"] == task]
        lengths, by = sorted({row["length"] for row in points}), {(row["model"], row["length"]): row for row in points}
        lines = [of_rows(name, [by[name, length] for length in lengths], "score") for name in names]
        title = f"{task} ({points[0]['family']})"
        charts.append(panel(title, "length", "tokens of the prompt", lengths, "share right", lines, share=True))
    return charts


def _row(right: np.ndarray, control: np.ndarray, name: str, task: str, key: str) -> list[dict]:
    """The row of one model and task; none without items."""
    if not right.size:
        return []
    row = {"task": TASKS[task].title, "family": FAMILIES.get(task, "recall"), "model": name}
    row |= edges("score", share(right.mean(0))) | {"chance": 1 / CHOICES, "items": right.shape[1]}
    return [row | compared(key, apart(right, control if len(right) > 1 else control.mean(0)))]


def _stage(report: Callable[[float, str], None], done: float, length: int, stage: str) -> None:
    report(done, f"{stage}, {length:,} tokens")


def _right(parts: list[dict], task: str, lengths: list[int]) -> np.ndarray:
    """Scores of the items of a task at these lengths [seeds, items]."""
    return np.array([sum((part["tasks"][str(length)].get(task, []) for length in lengths), []) for part in parts])
