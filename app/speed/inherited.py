"""What Speed takes over: the settings of Focus that stand on Quality vs speed, and the latest launch."""

import streamlit as st

from analysis.runs import Run
from app import cached
from app.selection import state

# A setting of Focus -> its control.
FIELDS = {"top": "speed_top", "window": "speed_window", "n_sink": "speed_sinks"}
ASKED = FIELDS | {"length": "speed_prompt", "new_tokens": "speed_new", "repeats": "speed_rounds"}
NAMES = ("groups per token", "window", "sinks", "prompt", "new tokens", "rounds")  # of `ASKED`, in words


def settings() -> dict[str, int]:
    """The settings of Focus that were changed on Quality vs speed, of those that a launch times."""
    for part in (st.session_state["quality"] or "").split("~~"):
        name, *changed = part.split("~")
        if name == "focus":
            values = dict(pair.partition("-")[::2] for pair in changed)
            return {field: int(values[field]) for field in FIELDS if values.get(field, "").isdigit()}
    return {}


def launches() -> list[Run]:
    """The stored runs of `launch` for the model, text and groups in use, the newest first."""
    wanted = {name: st.session_state[name] for name in ("model", "text", "router")}
    return [run for run in cached.store().list("launch") if wanted.items() <= run.request.items()]


def in_words(run: Run) -> str:
    """The settings of a launch that were chosen."""
    named = zip(NAMES, map(run.request.get, ASKED), strict=True)
    return ", ".join(f"{name} {value:,}" for name, value in named if value is not None) or "as the groups were made"


def take(request: dict) -> None:
    """A callback: the page gets the settings of a launch."""
    values = {control: request.get(name) for name, control in ASKED.items()}
    usual = {control: state.CONTROLS[control].default for control in values}
    state.choose(st.session_state, **{name: usual[name] if value is None else value for name, value in values.items()})
