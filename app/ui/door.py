"""A door of the menu: its pages as tabs, of which only the open one is drawn."""

from collections.abc import Callable, Mapping

import streamlit as st

from analysis.errors import BadModel, TooLarge
from analysis.limits import limits
from app.selection import state
from app.selection.menu import DOORS, PAGES, Door, Page
from app.ui import chips
from app.ui.tabs import tabs


def pages_of(door: Door) -> list[Page]:
    """The pages of a door; a shared demo has no list of runs, which are those of all readers."""
    return [page for page in door.pages if page.name != "runs" or not limits().demo]


def open_page(name: str) -> tuple[Page, list[str]]:
    """The page of this door that the selection opens, and a sentence where a link names one of another door. The first
    page of a door needs no name."""
    pages, at = pages_of(DOORS[name]), st.session_state["at"]
    page = next((page for page in pages if page.name == at), pages[0])
    strange = at is not None and page.name != at and "at" in st.session_state[state.LINKED]
    if page is pages[0]:
        state.choose(st.session_state, at=None)
    return page, [state.unusable("at", at)] if strange else []


def door(rooms: Mapping[str, Callable[[], None]]) -> None:
    """Draw the open page of a door; `rooms`: how each of its pages is drawn, by its name."""
    pages = pages_of(PAGES[next(iter(rooms))].door)
    with st.container(key="door"):
        troubles = tabs("at", {page.name: page.title for page in pages}, rooms)
    if any(isinstance(trouble, (BadModel, TooLarge)) for trouble in troubles):
        st.button("Back to the bundled model", on_click=chips.use_model, args=("demo",), key="way_back")
