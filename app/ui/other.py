"""A second text or a second model, which stands beside the one in use; and which of its tokens is at the same place."""

from bisect import bisect_right

import streamlit as st

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
        wanted = chosen[pick]
        state.choose(chosen, **{control: None if wanted == NOTHING else wanted})

    names = {NOTHING: "Nothing"} | offered
    look = {"format_func": names.get, "required": True, "on_change": switched}
    st.segmented_control("Beside it", list(names), key=pick, **look)
    return chosen[control]


def whole(control: str, first: Run, **of_model: object) -> tuple[dict, tuple[str, str]] | None:
    """Ask for a second text or model beside the run `first`: what its request has instead, and the names of both sides;
    None for nothing. A second model brings its own groups, and `of_model`."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        second_kind = choice(control, CHOICES)
        if second_kind == "text":
            key, names = text(), cached.texts()
            return {"text": key}, (names[first.request["text"]], names[key])
        if second_kind == "model" and (second := model()) is not None:
            changes = {"model": second, "router": asking.routers(second)[0], **of_model}
            return changes, (first.request["model"], second)
    return None


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
