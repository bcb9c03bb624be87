"""Needles and writing inside the model: what methods that read as many keys of each token answer and write."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.methods.base import Method
from analysis.models import Model
from analysis.probes.pieces import Item, Pieces
from analysis.probes.prompts import Ask
from analysis.probes.scoring import KNOWN, answer_logs, chosen, control
from analysis.probes.tasks import TASKS
from analysis.studies.generate.writing import write
from analysis.studies.speed.launch import first_difference

# Task -> what it is called in a chart.
NEEDLES = {"uuid_needle": "one needle", "several_needles": "one of four needles"}
DEPTHS, CHOICES = (0.1, 0.35, 0.6, 0.85), 4
# Tokens that are written.
NEW = 32


@dataclass(frozen=True)
class Needles:
    """Questions by task, each with the same after a short text without its answer."""

    items: dict[str, list[tuple[Item, Item]]]

    @classmethod
    def of(cls, lm: Model, windows: np.ndarray, count: int, length: int, seed: int) -> "Needles":
        """`count` needles of each task in prompts of `length` tokens, hidden in held-out windows [n, T] in turns."""
        hay = [Pieces(lm.tokenizer, lm.tokenizer.decode(ids, skip_special_tokens=True)) for ids in windows]
        items: dict[str, list[tuple[Item, Item]]] = {}
        for task in NEEDLES:
            for number in range(count):
                draw, pieces = np.random.default_rng([seed, number]), hay[number % len(hay)]
                ask = Ask(length, CHOICES, depth=DEPTHS[number // len(hay) % len(DEPTHS)])
                item = TASKS[task].make(pieces, ask, draw)
                items.setdefault(task, []).append((item, control(pieces, item, draw)))
        return cls(items)

    def answered(self, lm: Model, method: Method, turn: str = KNOWN) -> dict[str, list[float]]:
        """Of each task, whether the right answer is chosen."""
        return {
            task: [
                chosen(answer_logs(lm, method, item, turn) - answer_logs(lm, method, alone, turn), item.right)
                for item, alone in pairs
            ]
            for task, pairs in self.items.items()
        }


def written(lm: Model, method: Method, windows: Sequence[np.ndarray]) -> list[list[int]]:
    """The tokens written after three quarters of each window, one by one through the method's cache."""
    cuts = [3 * len(ids) // 4 for ids in windows]
    return [
        write(lm, method, ids[:cut], cut, NEW, lambda tokens: None).tokens
        for ids, cut in zip(windows, cuts, strict=True)
    ]


def alike(ours: list[list[int]], dense: list[list[int]]) -> list[float]:
    """Of each text the share of dense attention's tokens that are written before the first other one."""
    shares = []
    for answer, theirs in zip(ours, dense, strict=True):
        apart = first_difference(theirs, answer)
        shares.append(1.0 if apart is None else apart / len(theirs))
    return shares


def keeping(method: Any, keys: float, tokens: int) -> Method:
    """An eviction that leaves so many keys of a prompt."""
    return method(ratio=max(0.0, 1 - keys / tokens))
