"""Tabs and drawers of a page: what is open stands in the URL, and only that is drawn."""

from collections.abc import Callable, Collection, Mapping

import streamlit as st

from app.selection import state
from app.ui import widgets


def tabs(
    control: str,
    titles: Mapping[str, str],
    rooms: Mapping[str, Callable[[], None]],
    holds: Mapping[str, Collection[str]] | None = None,
) -> list[Exception]:
    """Draw the tab that the control of this name chooses, the first one where it chooses none; `titles` and `rooms`
    go by the values of the control. `holds`: controls that stand on a tab, which a link that brings one of them and
    names no tab opens. Returns what failed."""
    chosen, key = st.session_state, f"{control}_pick"
    for name, controls in (holds or {}).items():
        if chosen[control] is None and chosen[state.LINKED] & set(controls):
            state.choose(chosen, **{control: name})
    chosen[key] = titles[chosen[control] or next(iter(titles))]
    drawn_tabs = st.tabs(list(titles.values()), key=key, on_change=_switched, args=(control, titles))
    failed: list[Exception] = []
    for name, tab in zip(titles, drawn_tabs, strict=True):
        if tab.open:
            with tab, widgets.guarded() as troubles:
                rooms[name]()
            failed += troubles
    return failed


def _switched(control: str, titles: Mapping[str, str]) -> None:
    opened = st.session_state[f"{control}_pick"]
    state.choose(st.session_state, **{control: next(name for name, title in titles.items() if title == opened)})


def drawer(
    control: str,
    draw: Callable[[], None],
    holds: Collection[str] = (),
    title: str = "Study",
    icon: str = ":material/science:",
) -> None:
    """What is folded away, studies of papers unless the `title` says otherwise: open where the control says so, or
    where a link brings one of the controls in it (`holds`)."""
    if st.session_state[state.LINKED] & set(holds):
        state.choose(st.session_state, **{control: True})
    key = f"{control}_open"
    st.session_state[key] = st.session_state[control]
    expander = st.expander(title, icon=icon, key=key, on_change=_folded, args=(control,))
    if expander.open:
        with expander, widgets.guarded():
            draw()


def _folded(control: str) -> None:
    state.choose(st.session_state, **{control: st.session_state[f"{control}_open"]})


def folds(control: str, titles: Mapping[str, str], rooms: Mapping[str, Callable[[], None]]) -> None:
    """Details of a page, folded one below the other; the control says which of them is open, its default that none is.
    `titles` and `rooms` go by its values."""
    for name, draw in rooms.items():
        key = f"{control}_{name}_open"
        st.session_state[key] = st.session_state[control] == name
        expander = st.expander(titles[name], key=key, on_change=_unfolded, args=(control, name))
        if expander.open:
            with expander, widgets.guarded():
                draw()


def _unfolded(control: str, name: str) -> None:
    is_open = st.session_state[f"{control}_{name}_open"]
    state.choose(st.session_state, **{control: name if is_open else state.CONTROLS[control].default})
