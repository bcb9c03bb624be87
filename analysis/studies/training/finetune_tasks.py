"""The generated long-context tasks, and the benchmarks of Focus' tables 1, 3 and 4, asked of a model that was just
trained: which items it answers rightly."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from ...benchmarks import FOLDER, here
from ...benchmarks.tasks import TASKS as BENCHMARKS
from ...corpus import sample_texts
from ...errors import BadSetting, TooLarge
from ...methods.base import Method
from ...models import Model
from ...probes.pieces import Pieces, cut
from ...probes.scoring import answer_logs, chosen, control
from ...probes.tasks import TASKS, Ask
from ..benchmarks.benchmark import with_room
from ..benchmarks.scores import Coded, answers as logs_of
from ..benchmarks.tasks import Asked, asked

CHOICES, DEPTH, EXAMPLES = 4, 0.5, 16
# The tables' benchmarks, and how many questions of each are asked.
PRINTED, BENCHMARKED = ("hellaswag", "arc_easy", "piqa", "lambada", "truthfulqa"), 100
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


def benchmarks(lm: Model) -> dict[str, tuple[Asked, list[Coded]]]:
    """task -> it and the tokens of its first questions, of the tables' tasks whose files are here and whose questions
    fit the model. Errors: BadSetting where none are."""
    coded_by_task = {}
    for name in here(FOLDER, PRINTED):
        with suppress(TooLarge):
            coded_by_task[name] = with_room(lm, asked(name, FOLDER, None, BENCHMARKED, 0))[:2]
    if not coded_by_task:
        raise BadSetting(
            f"No benchmark can be asked: put files that {lm.name} can read into a folder for each of "
            f"{', '.join(PRINTED)} in {FOLDER}."
        )
    return coded_by_task


def within(tokens: int, questions_by_task: dict[str, list], coded_by_task: dict[str, list[Coded]]) -> dict[str, float]:
    """Of every task and benchmark, the share of the questions that take, each answer with its prompt, at most so many
    tokens."""
    lengths = {
        name: [len(item.ids) + item.candidates.shape[1] for item, _ in of] for name, of in questions_by_task.items()
    }
    lengths |= {name: [text.longest for text in coded] for name, coded in coded_by_task.items()}
    return {name: float(np.mean(np.array(of_task) <= tokens)) for name, of_task in lengths.items()}


def chances(coded_by_task: dict[str, list[Coded]]) -> dict[str, float]:
    """Of the benchmarks that are a choice, the share right of a guess."""
    counts = {name: np.array([len(text.answers) for text in coded]) for name, coded in coded_by_task.items()}
    return {name: float((1 / answers).mean()) for name, answers in counts.items() if answers.min() > 1}


def scored(
    lm: Model, method: Method, asked_by_task: dict[str, tuple[Asked, list[Coded]]], report: Callable[[str], None]
) -> dict[str, list[float]]:
    """task -> per question the metric that the tables print."""
    scores = {}
    for name, (task, coded) in asked_by_task.items():
        logs = []
        for number, text in enumerate(coded, 1):
            report(f"{task.title}, question {number} of {len(coded)}")
            logs.append(logs_of(lm, method, text))
        scores[name] = task.values(logs)[BENCHMARKS[name].metric]
    return scores
