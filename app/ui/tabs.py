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
    drawn_tabs = st.tabs(
        list(titles.values()),
        key=key,
        on_change=lambda control, titles: state.choose(
            chosen, **{control: next(name for name, title in titles.items() if title == chosen[key])}
        ),
        args=(control, titles),
    )
    failed: list[Exception] = []
    for name, tab in zip(titles, drawn_tabs, strict=True):
        if tab.open:
            with tab, widgets.guarded() as troubles:
                rooms[name]()
            failed += troubles
    return failed


def drawer(
    control: str,
    draw: Callable[[], None],
    holds: Collection[str] = (),
    title: str = "Study",
    icon: str = ":material/science:",
) -> None:
    """What is folded away, studies of papers unless the `title` says otherwise: open where the control says so, or
    where a link brings one of the controls in it (`holds`)."""
    chosen, key = st.session_state, f"{control}_open"
    if chosen[state.LINKED] & set(holds):
        state.choose(chosen, **{control: True})
    chosen[key] = chosen[control]
    expander = st.expander(title, icon=icon, key=key, on_change=lambda: state.choose(chosen, **{control: chosen[key]}))
    if expander.open:
        with expander, widgets.guarded():
            draw()


def folds(control: str, titles: Mapping[str, str], rooms: Mapping[str, Callable[[], None]]) -> None:
    """Details of a page, folded one below the other; the control says which of them is open, its default that none is.
    `titles` and `rooms` go by its values."""
    chosen, closed = st.session_state, state.CONTROLS[control].default
    for name, draw in rooms.items():
        key = f"{control}_{name}_open"
        chosen[key] = chosen[control] == name
        expander = st.expander(
            titles[name],
            key=key,
            on_change=lambda control, name: state.choose(
                chosen, **{control: name if chosen[f"{control}_{name}_open"] else closed}
            ),
            args=(control, name),
        )
        if expander.open:
            with expander, widgets.guarded():
                draw()
