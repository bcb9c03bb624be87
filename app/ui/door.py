"""A door of the menu: its pages as tabs, of which only the open one is drawn."""

from collections.abc import Callable, Mapping

import streamlit as st

from analysis.errors import BadModel, TooLarge
from analysis.limits import limits
from app.selection.menu import PAGES, Door, Page
from app.ui import chips
from app.ui.tabs import tabs


def pages_of(door: Door) -> list[Page]:
    """The pages of a door; a shared demo has no list of runs, which are those of all readers."""
    return [page for page in door.pages if page.name != "runs" or not limits().demo]


def door(rooms: Mapping[str, Callable[[], None]]) -> None:
    """Draw the open page of a door; `rooms`: how each of its pages is drawn, by its name."""
    pages = pages_of(PAGES[next(iter(rooms))].door)
    with st.container(key="door"):
        troubles = tabs("at", {page.name: page.title for page in pages}, rooms)
    if any(isinstance(trouble, (BadModel, TooLarge)) for trouble in troubles):
        st.button("Back to the bundled model", on_click=chips.use_model, args=("demo",), key="way_back")
