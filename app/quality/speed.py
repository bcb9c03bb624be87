"""Speed beside quality: what was measured with a method's settings, and the button that measures it."""

from collections.abc import Sequence

import streamlit as st

from analysis.runs import Run
from app import cached
from app.quality.headline import phases
from app.quality.words import Asked
from app.speed import requests as speed_requests
from app.ui import jobs, widgets

LAUNCHED = {"top", "window", "n_sink"}  # the settings that `launch` times
NEW, ROUNDS = 32, 5  # tokens written after the prompt; rounds of dense and sparse in turns


TIMED = {"prefill": "to the first token", "per_token": "for each further token"}


def measured(choice: Asked, size: int, context: int, launched: Sequence[Run]) -> dict | None:
    """The stored speed-up with these settings: `median low high`, the `length`, what it is `of`, the `phases` of the
    whole model, which reads `context` tokens, and the `window` of `size` tokens that the quality is of. Of attention
    where
    `launch` can time the method (of the prompt nearest in length, of those `launched`), else of the phase that its own
    kernels make fastest.
    """
    if not can_launch(choice):
        return _timed(choice, size, context)
    speeds = []
    for run in launched:
        used = {
            name: choice.defaults[name] if run.request.get(name) is None else run.request[name] for name in LAUNCHED
        }
        speed = run.numbers["speedup"].get("attention")
        if speed and all(used[name] == choice.settings[name] for name in LAUNCHED):
            length = run.numbers["length"]
            by_phase = {"phases": phases(run.numbers, context), "window": size}
            speeds.append(speed | {"length": length, "of": "attention"} | by_phase)
    return min(speeds, key=lambda speed: abs(speed["length"] - size), default=None)


def _timed(choice: Asked, size: int, context: int) -> dict | None:
    run = cached.store().find("time-method", time_request(choice))
    speeds = {} if run is None else {name: speed for name, speed in run.numbers["speedup"].items() if speed}
    if not speeds:
        return None
    best, length = max(speeds, key=lambda name: speeds[name]["median"]), run.numbers["length"]
    by_phase = {"phases": phases(run.numbers, context), "window": size}
    return speeds[best] | {"length": length, "of": TIMED[best]} | by_phase


def timed_prompt(choice: Asked, context: int) -> dict | None:
    """As `measured`, of the prompt: for methods that decide at its end."""
    run = cached.store().find("time-method", time_request(choice))
    speed = run and run.numbers["speedup"].get("prefill")
    if not speed:
        return None
    length = run.numbers["length"]
    return speed | {"length": length, "of": TIMED["prefill"], "phases": phases(run.numbers, context), "window": length}


def time_request(choice: Asked) -> dict:
    """The arguments of `time-method` for a method as it is asked for."""
    args = {name: st.session_state[name] for name in ("model", "text")} | {"method": choice.spec}
    return args | {"length": None, "new_tokens": NEW // 2, "repeats": 3}


def can_launch(choice: Asked) -> bool:
    """Whether `launch` times this method with these settings."""
    return bool(choice.router) and LAUNCHED <= set(choice.settings) and set(choice.changed) <= LAUNCHED


def launch_request(choice: Asked, size: int, context: int) -> dict:
    """The arguments of `launch` for a method on a prompt of `size` tokens, of `context` with its answer."""
    args = {name: st.session_state[name] for name in ("model", "text")} | {"router": choice.router}
    args |= {name: choice.settings[name] for name in LAUNCHED}
    return args | {"new_tokens": NEW, "length": max(2, min(size, context - NEW)), "repeats": ROUNDS}


def buttons(choices: Sequence[Asked], card: dict, size: int) -> None:
    """Turns a hollow mark into a solid one: dense and sparse inference timed with these settings, as a job; and who
    has no kernel that could be timed."""
    for choice in choices:
        label, key = f"Measure the speed of {choice.about['title']} here", f"quality_launch_{choice.name}"
        if can_launch(choice):
            request = launch_request(choice, size, card["max_positions"])
            if cached.store().find("launch", request) is None:
                price = speed_requests.launch_price(request, card, request["length"])
                jobs.run_button(label, "launch", request, key, price=price)
        elif choice.about.get("kernels") and cached.store().find("time-method", time_request(choice)) is None:
            jobs.run_button(label, "time-method", time_request(choice), key, tokens=size)
    without = [choice.about["title"] for choice in choices if choice.about.get("kernels") == []]
    if without:
        widgets.prose(
            f"There is no kernel here for {', '.join(without)}. A masked pass measures quality and saves no time.",
            "quiet",
        )
