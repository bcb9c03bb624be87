"""Speed beside quality: what was measured with a method's settings, the verdict, and the button that measures it."""

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from analysis.commands.speed import Launch, TimeMethod
from analysis.runs import Run
from app import cached
from app.quality import ahead
from app.quality.asked import Asked
from app.speed import speed_requests
from app.ui import jobs

# Of a timing, in words.
PHASES = {"prefill": "the prompt", "per_token": "later tokens"}
# The settings that `launch` times.
LAUNCHED = {"top", "window", "n_sink"}
# Tokens written after the prompt; rounds of dense and sparse in turns.
NEW, ROUNDS = 32, 5


@dataclass(frozen=True)
class Phase:
    """What a timing says of one phase against dense: the speed-up at `length` tokens with the range of its rounds."""

    name: str
    length: int
    median: float
    low: float
    high: float

    def __str__(self) -> str:
        """The phase in words: rounds on both sides of 1 show no difference."""
        if self.low <= 1 <= self.high:
            return f"{self.name}: undecided ({self.low:.2f} to {self.high:.2f} times dense)"
        return f"{self.name} {self.median:.2f} times dense speed"


def measured(choice: Asked, size: int, launched: Sequence[Run]) -> tuple[Phase, ...]:
    """The phases that were timed with these settings, of the prompt nearest to `size` tokens in length; of those
    `launched` where `launch` can time the method."""
    if not can_launch(choice):
        run = cached.store().find(time_request(choice))
        return phases(run.numbers) if run else ()
    timings = []
    for run in launched:
        given = {name: value for name, value in run.request.items() if name in LAUNCHED and value is not None}
        if choice.settings == choice.defaults | given:
            timings.append(run.numbers)
    nearest = min(timings, key=lambda numbers: abs(numbers["length"] - size), default=None)
    return phases(nearest) if nearest else ()


def phases(numbers: dict) -> tuple[Phase, ...]:
    """What a run of `launch` or `time-method` timed of the whole model."""
    timed = [(title, numbers["speedup"].get(name)) for name, title in PHASES.items()]
    ends = [(title, times["median"], times["low"], times["high"]) for title, times in timed if times]
    return tuple(Phase(title, numbers["length"], *times) for title, *times in ends)


def cell(choice: Asked, timed: Sequence[Phase]) -> str:
    """The best phase as a row shows it, or why there is none."""
    if timed:
        return f"{max(phase.median for phase in timed):.2f}×"
    if choice.about["ceiling"]:
        return "ceiling"
    return "not timed" if choice.about["kernels"] else "no kernel"


def verdict(choice: Asked, timed: Sequence[Phase]) -> str:
    """What is known of a method's speed here, after what was said of its quality."""
    if choice.about["ceiling"]:
        return "It scores every pair to choose: a bound for other methods, no saving."
    if timed:
        return f"At {timed[0].length:,} tokens: {'; '.join(map(str, timed))}."
    return "Speed unknown." if choice.about["kernels"] else "No kernel here: it saves no time yet."


def time_request(choice: Asked) -> TimeMethod:
    """What times a method as it is asked for."""
    chosen = st.session_state
    asked = {"model": chosen["model"], "text": chosen["text"], "method": choice.spec}
    return cached.request(TimeMethod, **asked, length=None, new_tokens=NEW // 2, repeats=3)


def can_launch(choice: Asked) -> bool:
    """Whether `launch` times this method with these settings."""
    return bool(choice.router) and LAUNCHED <= set(choice.settings) and set(choice.changed) <= LAUNCHED


def offer(choice: Asked, card: dict, size: int, settled: bool) -> None:
    """Where a kernel could be timed with these settings and was not yet: dense and sparse inference in turns. What is
    quick is timed without a click while the curves are `settled`, none of their steps going; else there is its
    button."""
    price, tokens = None, size
    if can_launch(choice):
        # The prompt leaves room for the answer.
        context = card["max_positions"]
        chosen, settings = st.session_state, {name: choice.settings[name] for name in LAUNCHED}
        length = max(2, min(size, context - NEW))
        about = {"model": chosen["model"], "text": chosen["text"], "router": choice.router}
        request: Launch | TimeMethod = cached.request(
            Launch, **about, **settings, new_tokens=NEW, length=length, repeats=ROUNDS
        )
        price = speed_requests.launch_price(request, card, length)
    elif choice.about["kernels"]:
        request = time_request(choice)
    else:
        return
    if cached.store().find(request) is None and not (settled and ahead.timed(request, tokens, price)):
        jobs.run_button("Time it", request, f"quality_launch_{choice.name}", tokens=tokens, price=price)
