"""The generated long-context tasks, asked of a model that was just trained: which items it answers rightly."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ...corpus import sample_texts
from ...errors import BadSetting
from ...methods.base import Method
from ...models import Model
from ...probes.pieces import Pieces, cut
from ...probes.scoring import answer_logs, chosen, control
from ...probes.tasks import TASKS, Ask

CHOICES, DEPTH, EXAMPLES = 4, 0.5, 16
PLACES: dict[str | None, dict[str, Any]] = {"depth": {"depth": DEPTH}, "examples": {"examples": EXAMPLES}, None: {}}


def questions(lm: Model, length: int, items: int, seed: int) -> dict[str, list]:
    """task -> its items in prompts of `length` tokens; a task that does not fit is left out."""
    pieces, by_task = Pieces(lm.tokenizer, next(iter(sample_texts().values()))[1]), {}
    for number, (name, task) in enumerate(TASKS.items()):
        ask = Ask(length, CHOICES, **PLACES[task.axis])
        try:
            items_of_task = [
                task.make(pieces, ask, np.random.default_rng([seed, number, item])) for item in range(items)
            ]
        except BadSetting:
            continue
        alone = [
            control(pieces, item, np.random.default_rng([seed, number])) for number, item in enumerate(items_of_task)
        ]
        limit = lm.max_positions
        by_task[name] = [
            (cut(item, limit, len(pieces.begin)).item, bare) for item, bare in zip(items_of_task, alone, strict=True)
        ]
    return by_task


def answers(
    lm: Model, method: Method, questions_by_task: dict[str, list], report: Callable[[str], None]
) -> dict[str, list[float]]:
    """task -> per item 1.0 for the right answer: the one whose log-probability the prompt raises most."""
    scores: dict[str, list[float]] = {}
    for name, items in questions_by_task.items():
        scores[name] = []
        for item, bare in items:
            report(TASKS[name].title if name in TASKS else name)
            gain = answer_logs(lm, method, item) - answer_logs(lm, method, bare)
            scores[name].append(float(chosen(gain, item.right)))
    return scores
