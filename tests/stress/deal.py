"""Inputs dealt to the ways in turn, and how often each way held."""

import os
import random
from collections import Counter
from collections.abc import Callable, Mapping

from analysis.errors import AnalysisError
from tests.stress.rows import Row
from tests.stress.scene import hold, readable

SECRET = "the secret of this machine"  # stands outside the store: nobody may read it
SLOW = 5.0  # seconds of work: an input that takes longer counts as one that broke something


def now() -> float:
    """Seconds that this process and those it waited for have worked: no input is slow because the machine is busy."""
    return sum(os.times()[:4])


def deal(kind: str, ways: Mapping[str, Callable], count: int, attempt: Callable[[Callable], object]) -> list[Row]:
    """`attempt(way)` for `count` inputs, one row per way; an input held unless its attempt raised."""
    times, held, said = Counter(), Counter(), {}
    for number in range(count):
        name = list(ways)[number % len(ways)]
        times[name] += 1
        try:
            attempt(ways[name])
            held[name] += 1
        except Exception as error:  # whatever breaks is what is looked for
            said.setdefault(name, f"{type(error).__name__}: {error}".split("\n")[0][:160])
    return [Row(f"{kind}: {name}", times[name], held[name], said.get(name, "")) for name in times]


def judged(judges: Mapping[str, Callable], count: int, seed: int, *given: object) -> list[Row]:
    """`count` inputs to what judges input, as `judge(dice, *given)`: an answer without the secret, or AnalysisError
    with one sentence, in time."""
    dice = random.Random(seed)

    def attempt(judge: Callable) -> None:
        began = now()
        try:
            hold(SECRET not in str(judge(dice, *given)), "what stands outside was read")
        except AnalysisError as error:
            readable(str(error))
        took = now() - began
        hold(took < SLOW, f"it took {took:.0f} s, and {SLOW:g} s are the limit")

    return deal("validator", judges, count, attempt)
