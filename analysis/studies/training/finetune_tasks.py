"""The generated long-context tasks, asked of a model that was just trained: which items it answers rightly."""

from collections.abc import Callable

import numpy as np

from analysis.corpus import sample_texts
from analysis.errors import BadSetting
from analysis.methods.base import Method
from analysis.models import Model
from analysis.probes.pieces import Pieces, cut
from analysis.probes.scoring import answer_logs, chosen, control
from analysis.probes.tasks import TASKS, Ask

CHOICES, DEPTH, EXAMPLES = 4, 0.5, 16
PLACES = {"depth": {"depth": DEPTH}, "examples": {"examples": EXAMPLES}, None: {}}


def questions(lm: Model, length: int, items: int, seed: int) -> dict[str, list]:
    """task -> its items in prompts of `length` tokens; a task that does not fit is left out."""
    pieces, made = Pieces(lm.tokenizer, next(iter(sample_texts().values()))[1]), {}
    for at, (name, task) in enumerate(TASKS.items()):
        ask = Ask(length, CHOICES, **PLACES[task.axis])
        try:
            found = [task.make(pieces, ask, np.random.default_rng([seed, at, one])) for one in range(items)]
        except BadSetting:
            continue
        alone = [control(pieces, one, np.random.default_rng([seed, at])) for at, one in enumerate(found)]
        limit = lm.max_positions
        made[name] = [(cut(one, limit, len(pieces.begin)).item, bare) for one, bare in zip(found, alone, strict=True)]
    return made


def answers(lm: Model, method: Method, asked: dict[str, list], told: Callable[[str], None]) -> dict[str, list[float]]:
    """task -> per item 1.0 for the right answer: the one whose log-probability the prompt raises most."""
    found = {}
    for name, items in asked.items():
        found[name] = []
        for item, bare in items:
            told(TASKS[name].title if name in TASKS else name)
            gain = answer_logs(lm, method, item) - answer_logs(lm, method, bare)
            found[name].append(float(chosen(gain, item.right)))
    return found
