"""A second head, or the same head on a second text, beside the first."""

import streamlit as st

from analysis.runs import Run
from app import cached
from app.heads import one
from app.selection import state
from app.ui import fields, widgets

NOTHING = "nothing"
CHOICES = {NOTHING: "Nothing", "head": "Another head", "text": "Another text"}


def second(table: dict, layer: int, head: int, part: int, query: int | None) -> tuple[str, Run] | None:
    """Ask what stands beside the head; (its name, its run), or None when nothing does."""
    chosen = st.session_state
    chosen["beside_pick"] = chosen["beside"] or NOTHING
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        look = {"format_func": CHOICES.get, "required": True, "on_change": _switched}
        st.segmented_control("Beside it", list(CHOICES), key="beside_pick", **look)
        if chosen["beside"] == "head":
            other = _head(table, layer, head)
            name, request = f"head {other[1]} of layer {other[0]}", (*other, part, query)
        elif chosen["beside"] == "text":
            text = _text()
            name, request = cached.texts()[text], (layer, head, 0, None, text)
            if name == cached.texts()[chosen["text"]]:
                name = f"{name}, the other"
        else:
            return None
    run = one.ask(*request)
    widgets.prose(run.numbers["sentence"], "quiet")
    return name, run


def _head(table: dict, layer: int, head: int) -> tuple[int, int]:
    """Which second head: the next one unless another was chosen."""
    every = sorted(zip(table["layer"], table["head"], strict=True))
    names = [f"{of_layer}.{of_head}" for of_layer, of_head in every]
    widgets.settled("other_head", [None, *names], None)
    following = names[(every.index((layer, head)) + 1) % len(names)]
    shown, look = st.session_state["other_head"] or following, {"width": 220, "format_func": _spelled}
    return every[names.index(fields.pick(st.selectbox, "Second head", names, "other_head", shown, **look))]


def _text() -> str:
    """Which second text: the first other one unless one was chosen."""
    offered = {key: name for key, name in cached.texts().items() if key != st.session_state["text"]}
    widgets.settled("other_text", [None, *offered], None)
    shown, look = st.session_state["other_text"] or next(iter(offered)), {"width": 320, "format_func": offered.get}
    return fields.pick(st.selectbox, "Second text", list(offered), "other_text", shown, **look)


def _spelled(name: str) -> str:
    layer, head = name.split(".")
    return f"layer {layer}, head {head}"


def _switched() -> None:
    wanted = st.session_state["beside_pick"]
    state.choose(st.session_state, beside=None if wanted == NOTHING else wanted)
