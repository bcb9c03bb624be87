"""The methods that have a kernel of their own, what times each, and the one button that launches it."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from analysis.claims import speeds
from analysis.commands.speed import Launch, TimeMethod
from analysis.runs import Price, Run
from app import cached
from app.selection import state
from app.speed import speed_requests
from app.ui import asking, jobs, widgets

LAUNCH = "Launch sparse inference"
# The method that `launch` times, with its text, kernels and parts.
LAUNCHED = "focus"


def timeable() -> dict[str, dict[str, Any]]:
    """Every method with a kernel, the one with the fullest timing first."""
    with_kernels = {name: about for name, about in cached.catalogue().items() if about.get("kernels")}
    return dict(sorted(with_kernels.items(), key=lambda entry: entry[0] != LAUNCHED))


def choose(label: str = "Method") -> str:
    """Which method is timed; those without a kernel are named in the hint."""
    methods = timeable()
    without = [about["title"] for name, about in cached.catalogue().items() if name not in methods and name != "dense"]
    widgets.settled("speed_method", list(methods), LAUNCHED)
    help = f"No kernel here, so no speed to measure: {', '.join(without)}." if without else None
    look: dict[str, Any] = {"format_func": lambda name: methods[name]["title"], "help": help}
    st.selectbox(label, list(methods), key="speed_method", **look)
    return str(st.session_state["speed_method"])


def request(method: str) -> Launch | TimeMethod:
    """What times a method on the text in use."""
    chosen = st.session_state
    if method == LAUNCHED:
        return speed_requests.launch()
    spec: dict[str, Any] = {"name": method, "settings": {}}
    if timeable()[method].get("needs") == "router":
        spec["router"] = chosen["router"]
    sizes = {"length": chosen["speed_prompt"], "new_tokens": chosen["speed_new"], "repeats": chosen["speed_rounds"]}
    return cached.request(TimeMethod, model=chosen["model"], text=chosen["text"], method=spec, **sizes)


def said(run: Run) -> str:
    """Who is faster, by the rounds that were measured."""
    return speeds(run.numbers["speedup"], run.protocol.get("repeats", 0))


def button(asked: Launch | TimeMethod, stored: Run | None) -> None:
    """Launch, or launch again; its price stands beside it."""
    jobs.run_button(
        LAUNCH,
        asked,
        f"speed_{asked.verb}",
        price=_price(asked),
        stored=stored,
        smaller=lambda: speed_requests.smaller(asked),
        type="primary",
    )


def _price(asked: Launch | TimeMethod) -> Price:
    chosen = st.session_state
    card = asking.card(chosen["model"])
    tokens = asked.length or min(asking.inspected()["tokens"], card["max_positions"] - asked.new_tokens)
    return speed_requests.launch_price(asked, card, tokens)


def settle() -> Mapping[str, Any]:
    """The card of the loaded model, with its groups chosen."""
    asking.settle_router()
    card: Mapping[str, Any] = asking.card(st.session_state["model"])
    return card


def use(request: Mapping[str, Any]) -> None:
    """A callback: the page gets the settings of a launch."""
    usual = {control: state.CONTROLS[control].default for control in speed_requests.ASKED.values()}
    asked = {control: request.get(name) for name, control in speed_requests.ASKED.items()}
    state.choose(st.session_state, **{name: usual[name] if value is None else value for name, value in asked.items()})
