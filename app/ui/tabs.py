"""Tabs of a page: the open one stands in the URL, and only that one is drawn."""

from collections.abc import Callable, Mapping

import streamlit as st

from app.selection import state
from app.ui import widgets


def tabs(control: str, titles: Mapping[str, str], rooms: Mapping[str, Callable[[], None]]) -> None:
    """Draw the tab that the control of this name chooses, the first one where it chooses none; `titles` and `rooms`
    go by the values of the control."""
    chosen, key = st.session_state, f"{control}_pick"
    chosen[key] = titles[chosen[control] or next(iter(titles))]
    shown = st.tabs(list(titles.values()), key=key, on_change=_switched, args=(control, titles))
    for name, tab in zip(titles, shown, strict=True):
        if tab.open:
            with tab, widgets.guarded():
                rooms[name]()


def _switched(control: str, titles: Mapping[str, str]) -> None:
    opened = st.session_state[f"{control}_pick"]
    state.choose(st.session_state, **{control: next(name for name, title in titles.items() if title == opened)})
