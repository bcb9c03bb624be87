"""Speed beside quality: what was measured with a method's settings, and the button that measures it."""

from collections.abc import Sequence

import streamlit as st

from analysis.commands.speed import Launch, TimeMethod
from analysis.runs import Run
from app import cached
from app.quality.asked import PHASES, Asked, Phase, Timed
from app.speed import speed_requests
from app.ui import jobs, widgets

# The settings that `launch` times.
LAUNCHED = {"top", "window", "n_sink"}
# Tokens written after the prompt; rounds of dense and sparse in turns.
NEW, ROUNDS = 32, 5


def phases(numbers: dict, context: int) -> tuple[Phase, ...]:
    """The phases that a run of `launch` or `time-method` timed, of a model that reads `context` tokens at once: what
    was estimated beyond them is left out."""
    listed = []
    for name, title in PHASES.items():
        speed, since = numbers["speedup"].get(name), numbers["crossover"].get(name)
        if speed:
            ends = speed["median"], speed["low"], speed["high"]
            listed.append(Phase(title, numbers["length"], *ends, since if since and since <= context else None))
    return tuple(listed)


def measured(choice: Asked, size: int, context: int, launched: Sequence[Run]) -> Timed | None:
    """The stored speed-up with these settings, whose quality is that of windows of `size` tokens. Of attention where
    `launch` can time the method (of the prompt nearest in length, of those `launched`), else of the phase that its own
    kernels make fastest. The model reads `context` tokens."""
    if not can_launch(choice):
        return timed_method(choice, context, size)
    timings = []
    for run in launched:
        given = {name: value for name, value in run.request.items() if name in LAUNCHED and value is not None}
        speed = run.numbers["speedup"].get("attention")
        if speed and choice.settings == choice.defaults | given:
            attention = Phase("attention", run.numbers["length"], speed["median"], speed["low"], speed["high"])
            timings.append(Timed(attention, phases(run.numbers, context), size))
    return min(timings, key=lambda timed: abs(timed.best.length - size), default=None)


def timed_method(choice: Asked, context: int, size: int | None = None) -> Timed | None:
    """The same by `time-method`; without a `size` of the prompt alone, for methods that decide at its end."""
    run = cached.store().find(time_request(choice))
    timed = phases(run.numbers, context) if run else ()
    wanted = [phase for phase in timed if size or phase.name == PHASES["prefill"]]
    best = max(wanted, key=lambda phase: phase.median, default=None)
    return Timed(best, timed, size or best.length) if best else None


def time_request(choice: Asked) -> TimeMethod:
    """What times a method as it is asked for."""
    chosen = st.session_state
    asked = {"model": chosen["model"], "text": chosen["text"], "method": choice.spec}
    return cached.request(TimeMethod, **asked, length=None, new_tokens=NEW // 2, repeats=3)


def can_launch(choice: Asked) -> bool:
    """Whether `launch` times this method with these settings."""
    return bool(choice.router) and LAUNCHED <= set(choice.settings) and set(choice.changed) <= LAUNCHED


def launch_request(choice: Asked, size: int, context: int) -> Launch:
    """What launches a method on a prompt of `size` tokens, of `context` with its answer."""
    chosen, settings = st.session_state, {name: choice.settings[name] for name in LAUNCHED}
    length = max(2, min(size, context - NEW))
    about = {"model": chosen["model"], "text": chosen["text"], "router": choice.router}
    return cached.request(Launch, **about, **settings, new_tokens=NEW, length=length, repeats=ROUNDS)


def buttons(choices: Sequence[Asked], card: dict, size: int) -> None:
    """Turns a hollow mark into a solid one: dense and sparse inference timed with these settings, as a job; and who
    has no kernel that could be timed."""
    for choice in choices:
        label, key = f"Measure the speed of {choice.title} here", f"quality_launch_{choice.name}"
        if can_launch(choice):
            request = launch_request(choice, size, card["max_positions"])
            if cached.store().find(request) is None:
                price = speed_requests.launch_price(request, card, request.length)
                jobs.run_button(label, request, key, price=price)
        elif choice.about.get("kernels") and cached.store().find(time_request(choice)) is None:
            jobs.run_button(label, time_request(choice), key, tokens=size)
    without = [choice.title for choice in choices if choice.about.get("kernels") == []]
    if without:
        widgets.prose(
            f"There is no kernel here for {', '.join(without)}. A masked pass measures quality and saves no time.",
            "quiet",
        )
