"""Which window of a text is looked at, and all of them at a price; one head in it."""

from typing import Any

import streamlit as st

from analysis.commands.heads import Ablate, Alike, Head
from analysis.runs import Run
from app import cached
from app.selection import state
from app.ui import asking, offers, widgets


def place(tokens: dict) -> tuple[int, int | None]:
    """(window of the text, query in that window or None) from the token in use."""
    windows = tokens["window"]
    widgets.settled("query", [None, *range(len(windows))], None)
    token = st.session_state["query"]
    return (0, None) if token is None else (windows[token], token - windows.index(windows[token]))


def ask(layer: int, head: int, part: int, query: int | None, **overrides: str) -> Run:
    """One head on one window of the chosen text; `overrides`: another `text` or `model`."""
    args = {"layer": layer, "head": head, "part": part, "query": query}
    args |= {"without_first": st.session_state["without_first"]}
    request = Head(**state.study_args(st.session_state, **args) | overrides)
    return asking.ask(request, f"Looking at head {layer}.{head}")


def spelled(part: int | None, tokens: dict) -> str:
    """What is read: window `part` of the text, or all of them (None)."""
    count, every = tokens["window"][-1] + 1, len(tokens["window"])
    if count == 1:
        return f"this text, {every:,} tokens"
    if part is None:
        return f"all {count} windows, {every:,} tokens"
    return f"window {part + 1} of {count}, {tokens['window'].count(part):,} of {every:,} tokens"


def windows(control: str, request: Alike | Ablate, tokens: dict) -> tuple[int | None, int]:
    """(window that is asked for, None for all; its tokens), as the switch `control` says. A text of several windows
    offers all of them, which then start at the price that the button says."""
    (part, _), count, every = place(tokens), tokens["window"][-1] + 1, len(tokens["window"])
    asked = None if count > 1 and st.session_state[control] else part
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        widgets.prose(f"{spelled(asked, tokens)}.".capitalize(), "quiet")
        if count == 1:
            return part, every
        if asked is None:
            back: dict[str, Any] = {"on_click": state.choose, "args": (st.session_state,), "kwargs": {control: False}}
            st.button(f"Window {part + 1} only", key=f"{control}_one", type="tertiary", **back)
            return None, every
        price = cached.due(request.but(part=None), every).price
        look: dict[str, Any] = {"help": f"{price.sentence}.", "type": "tertiary", "on_click": offers.set_off}
        look |= {"args": (request.verb,), "kwargs": {control: True}}
        st.button(f"All {count} windows, {price.short}", key=f"{control}_all", **look)
    return part, tokens["window"].count(part)
