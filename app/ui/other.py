"""A second text or a second model, which stands beside the one in use; and which of its tokens is at the same place."""

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

import streamlit as st

from analysis.declaration.command import Command
from analysis.limits import limits
from analysis.runs import Run
from app import cached
from app.selection import state
from app.ui import asking, fields, widgets

CHOICES = {"text": "Another text", "model": "Another model"}
NOTHING = "nothing"
BUNDLED = ("demo", "demo-gpt2")


def choice(control: str, offered: dict[str, str]) -> str | None:
    """Ask what stands beside: one of `offered` (value of the control -> name), or None for nothing."""
    chosen, pick = st.session_state, f"{control}_pick"
    chosen[pick] = chosen[control] or NOTHING

    def switched() -> None:
        state.choose(chosen, **{control: None if chosen[pick] == NOTHING else chosen[pick]})

    names = {NOTHING: "Nothing"} | offered
    look: dict[str, Any] = {"format_func": names.get, "required": True, "on_change": switched}
    st.segmented_control("Compare", list(names), key=pick, **look)
    return chosen[control]


def beside(
    control: str,
    first: Run,
    tokens: dict,
    command: type[Command],
    doing: str,
    draw: Callable[[Run, dict, int, list[Run]], None],
    **of_model: object,
) -> None:
    """Ask for a second text or model beside the run `first`, and draw both in two columns: `draw` gets a run, its table
    of tokens, its place and both runs, so that they have one scale. A second model brings its own groups, and
    `of_model`."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        kind = choice(control, CHOICES)
        if kind == "text":
            key, texts = text(), cached.texts()
            changes: dict[str, object] = {"text": key}
            names = texts[first.request["text"]], texts[key]
        elif kind == "model" and (second_model := model()) is not None:
            changes = {"model": second_model, "router": asking.routers(second_model)[0], **of_model}
            names = first.request["model"], second_model
        else:
            return
    second = asking.ask(command.from_arguments(first.request | changes), doing)
    runs = [first, second]
    with st.grid(2, min_column_width=420, gap="large"):
        for place, (name, run, words) in enumerate(zip(names, runs, (tokens, None), strict=True)):
            with st.container():
                st.subheader(name, anchor=False)
                draw(run, words or cached.columns(run, "tokens"), place, runs)


def text() -> str:
    """Which second text: the first other one unless one was chosen."""
    offered = {key: name for key, name in cached.texts().items() if key != st.session_state["text"]}
    return _picked("Second text", "other_text", offered)


def model() -> str | None:
    """Which second model: a bundled one or one that was loaded here before; None where there is no other."""
    before = [request["model"] for _, _, request in cached.store().past("model")]
    names = dict.fromkeys(limits().models or [*BUNDLED, *before])
    offered = {name: name for name in names if name != st.session_state["model"]}
    return _picked("Second model", "other_model", offered) if offered else None


def _picked(label: str, control: str, offered: dict[str, str]) -> str:
    widgets.settled(control, [None, *offered], None)
    value, look = st.session_state[control] or next(iter(offered)), {"width": 320, "format_func": offered.get}
    return fields.pick(st.selectbox, label, list(offered), control, value, **look)


def aligned(tokens: dict, token: int, second: dict) -> int:
    """The token of another tokenizer's table that holds the character at which token `token` begins."""
    place = bisect_right(second["start"], tokens["start"][token]) - 1
    return max(0, min(place, len(second["start"]) - 1))
