"""What Speed takes over: the settings of Focus that stand on Quality vs speed, and the latest launch."""

import streamlit as st

from analysis.runs import Run
from app import cached
from app.selection import state
from app.speed import shown
from app.ui import widgets

FIELDS = {"top": "speed_top", "window": "speed_window", "n_sink": "speed_sinks"}  # a setting of Focus -> its control
ASKED = FIELDS | {"length": "speed_prompt", "new_tokens": "speed_new", "repeats": "speed_rounds"}
NAMES = {"top": "groups per token", "window": "window", "n_sink": "sinks", "length": "prompt"}
NAMES |= {"new_tokens": "new tokens", "repeats": "rounds"}


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


def latest() -> None:
    """The latest launch, where it had other settings than those chosen now, with a button that takes them."""
    run = next(iter(launches()), None)
    if run is None:
        return
    settings_words = ", ".join(
        f"{NAMES[name]} {run.request[name]:,}" for name in ASKED if run.request.get(name) is not None
    )
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.badge("latest launch", icon=":material/history:", color="gray")
        widgets.prose(f"With other settings than those above: {settings_words or 'as the groups were made'}.", "quiet")
        st.button("Take its settings", key="speed_take", on_click=_take, args=(run.request,), type="tertiary")
    shown.launched(run)


def _take(request: dict) -> None:
    values = {control: request.get(name) for name, control in ASKED.items()}
    usual = {control: state.CONTROLS[control].default for control in values}
    state.choose(st.session_state, **{name: usual[name] if value is None else value for name, value in values.items()})
