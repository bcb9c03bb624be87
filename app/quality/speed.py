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


def measured(one: Asked, size: int, most: int, launched: Sequence[Run]) -> dict | None:
    """The stored speed-up with these settings: `median low high`, the `length`, what it is `of`, the `phases` of the
    whole model, which reads `most` tokens, and the `window` of `size` tokens that the quality is of. Of attention where
    `launch` can time the method (of the prompt nearest in length, of those `launched`), else of the phase that its own
    kernels make fastest.
    """
    if not can_launch(one):
        return _timed(one, size, most)
    found = []
    for run in launched:
        used = {name: one.defaults[name] if run.request.get(name) is None else run.request[name] for name in LAUNCHED}
        speed = run.numbers["speedup"].get("attention")
        if speed and all(used[name] == one.settings[name] for name in LAUNCHED):
            length = run.numbers["length"]
            whole = {"phases": phases(run.numbers, most), "window": size}
            found.append(speed | {"length": length, "of": "attention"} | whole)
    return min(found, key=lambda speed: abs(speed["length"] - size), default=None)


def _timed(one: Asked, size: int, most: int) -> dict | None:
    run = cached.store().find("time-method", time_request(one))
    found = {} if run is None else {name: speed for name, speed in run.numbers["speedup"].items() if speed}
    if not found:
        return None
    best, length = max(found, key=lambda name: found[name]["median"]), run.numbers["length"]
    whole = {"phases": phases(run.numbers, most), "window": size}
    return found[best] | {"length": length, "of": TIMED[best]} | whole


def timed_prompt(one: Asked, most: int) -> dict | None:
    """As `measured`, of the prompt: for methods that decide at its end."""
    run = cached.store().find("time-method", time_request(one))
    speed = run and run.numbers["speedup"].get("prefill")
    if not speed:
        return None
    length = run.numbers["length"]
    return speed | {"length": length, "of": TIMED["prefill"], "phases": phases(run.numbers, most), "window": length}


def time_request(one: Asked) -> dict:
    """The arguments of `time-method` for a method as it is asked for."""
    args = {name: st.session_state[name] for name in ("model", "text")} | {"method": one.spec}
    return args | {"length": None, "new_tokens": NEW // 2, "repeats": 3}


def can_launch(one: Asked) -> bool:
    """Whether `launch` times this method with these settings."""
    return bool(one.router) and LAUNCHED <= set(one.settings) and set(one.changed) <= LAUNCHED


def launch_request(one: Asked, size: int, most: int) -> dict:
    """The arguments of `launch` for a method on a prompt of `size` tokens, of `most` with what is written after it."""
    args = {name: st.session_state[name] for name in ("model", "text")} | {"router": one.router}
    args |= {name: one.settings[name] for name in LAUNCHED}
    return args | {"new_tokens": NEW, "length": max(2, min(size, most - NEW)), "repeats": ROUNDS}


def buttons(asked: Sequence[Asked], card: dict, size: int) -> None:
    """Turns a hollow mark into a solid one: dense and sparse inference timed with these settings, as a job; and who
    has no kernel that could be timed."""
    for one in asked:
        label, key = f"Measure the speed of {one.about['title']} here", f"quality_launch_{one.name}"
        if can_launch(one):
            request = launch_request(one, size, card["max_positions"])
            if cached.store().find("launch", request) is None:
                price = speed_requests.launch_price(request, card, request["length"])
                jobs.run_button(label, "launch", request, key, price=price)
        elif one.about.get("kernels") and cached.store().find("time-method", time_request(one)) is None:
            jobs.run_button(label, "time-method", time_request(one), key, tokens=size)
    without = [one.about["title"] for one in asked if one.about.get("kernels") == []]
    if without:
        widgets.prose(
            f"There is no kernel here for {', '.join(without)}. A masked pass measures quality and saves no time.",
            "quiet",
        )
