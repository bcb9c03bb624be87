"""A chip of the top bar: what is in use as a button that opens the choice."""

from collections.abc import Callable
from typing import Any, Literal

import streamlit as st

from app.selection import state
from app.ui import widgets


def chip(
    kind: str, name: str, icon: str, draw: Callable[[], None], watch: Callable[[bool], None] | None = None
) -> None:
    """What is in use as a button that opens the choice; choosing closes it, by a new key. `watch` is drawn below, and
    told whether the choice is open: what renews itself need not where nobody looks."""
    key = f"{kind}_chip_{st.session_state.setdefault(f'{kind}_chosen', 0)}"
    label = f"{kind.capitalize()}: {widgets.plain(name)}"
    change: Literal["rerun", "ignore"] = "rerun" if watch else "ignore"
    with st.popover(label, icon=f":material/{icon}:", key=key, on_change=change) as popover:
        draw()
        if watch is not None:
            watch(bool(popover.open))


def choice(
    kind: str, label: str, options: list, now: object, chosen: Callable, spell: Callable = str, **look: Any
) -> None:
    """A list inside a chip, `now` being in use: each value in use has a list of its own, which begins with it. The
    browser tells of the list of a chip that has closed once more, with the next page: that is no choice."""
    key = f"{kind}_pick_{now}"

    def picked() -> None:
        if st.session_state[key] != now:
            chosen(st.session_state[key])
            close(kind)

    st.selectbox(label, options, options.index(now), spell, key=key, on_change=picked, **look)


def close(kind: str) -> None:
    """A callback: the chip of this kind closes, and its fields are empty when it opens again."""
    st.session_state[f"{kind}_chosen"] = st.session_state.get(f"{kind}_chosen", 0) + 1


def use_model(name: str) -> None:
    """Another model: its routers, layers and heads are others."""
    state.choose(st.session_state, model=name, router=None, layer=None, group=None, head=None, pair=None)


def use_router(name: str) -> None:
    """Choose a router; groups and pairs of another one mean nothing in it."""
    state.choose(st.session_state, router=name, group=None, pair=None, job=None)
