"""Speed beside quality: what `launch` measured with a method's settings, and the button that measures it."""

from collections.abc import Sequence

import streamlit as st

from app import cached, panels
from app.quality.words import Asked
from app.speed import requests as speed_requests

LAUNCHED = {"top", "window", "n_sink"}  # the settings that `launch` times
NEW, ROUNDS = 32, 5  # tokens written after the prompt; rounds of dense and sparse in turns


def measured(one: Asked, size: int) -> dict | None:
    """The stored speed-up of attention with these settings: of the prompt nearest in length, the newest of equals."""
    if not can_launch(one):
        return None
    wanted, found = launch_request(one, size, size), []
    for run in cached.store().list("launch"):
        same = all(run.request.get(name) == wanted[name] for name in ("model", "text", "router"))
        used = {name: one.defaults[name] if run.request.get(name) is None else run.request[name] for name in LAUNCHED}
        speed = run.numbers["speedup"].get("attention")
        if same and speed and all(used[name] == one.settings[name] for name in LAUNCHED):
            found.append(speed | {"length": run.numbers["length"]})
    return min(found, key=lambda speed: abs(speed["length"] - size), default=None)


def can_launch(one: Asked) -> bool:
    """Whether `launch` times this method with these settings."""
    return bool(one.router) and LAUNCHED <= set(one.settings) and set(one.changed) <= LAUNCHED


def launch_request(one: Asked, size: int, most: int) -> dict:
    """The arguments of `launch` for a method on a prompt of `size` tokens, of `most` with what is written after it."""
    args = {name: st.session_state[name] for name in ("model", "text")} | {"router": one.router}
    args |= {name: one.settings[name] for name in LAUNCHED}
    return args | {"new_tokens": NEW, "length": max(2, min(size, most - NEW)), "repeats": ROUNDS}


def buttons(asked: Sequence[Asked], card: dict, size: int) -> None:
    """Turns a hollow mark into a solid one: dense and sparse inference timed with these settings, as a job."""
    for one in filter(can_launch, asked):
        request = launch_request(one, size, card["max_positions"])
        if cached.store().find("launch", request) is None:
            price = speed_requests.launch_price(request, card, request["length"])
            label = f"Measure the speed of {one.about['title']} here"
            panels.run_button(label, "launch", request, f"quality_launch_{one.name}", price=price)
