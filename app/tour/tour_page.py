"""The 60-second tour: what attention reads, in five steps on a bundled text, in type for the last row."""

from typing import Any

import streamlit as st

from analysis.declaration import in_address
from app import cached
from app.selection import state
from app.selection.look import TOUR_STEPS
from app.selection.menu import PAGES
from app.tour.steps import SHOWN, STORY
from app.ui import asking, foot, painted, widgets


def go(step: str) -> None:
    """A callback: another step."""
    state.choose(st.session_state, step=step)


def show() -> None:
    """One step, with the ways back, on, and to its page."""
    st.html(painted.PARTS / "tour.css")
    step, text, names = st.session_state["step"], cached.samples()[STORY.sample][0], list(TOUR_STEPS)
    place = names.index(step)
    with st.container(horizontal=True, vertical_alignment="center", key="tour_on"):
        st.title(f"{place + 1} of {len(names)} · {TOUR_STEPS[step]}", anchor=False, width="stretch")
        look: dict[str, Any] = {"icon": ":material/arrow_back:", "shortcut": "Left", "disabled": place == 0}
        st.button("Back", key="tour_back", on_click=go, args=(names[max(place - 1, 0)],), **look)
        if step != names[-1]:
            look = {"icon": ":material/arrow_forward:", "shortcut": "Right", "type": "primary"}
            st.button("Next", key="tour_next", on_click=go, args=(names[place + 1],), **look)
        else:
            foot.link("text", "Now a text of your own", icon="upload_file")
    run = asking.ask(STORY.request(step, text), "Reading the text of the tour")
    with widgets.guarded():
        SHOWN[step](run, cached.columns(run, "tokens"))
    page, controls = STORY.leads_to(step)
    link = {name: in_address(value) for name, value in ({"model": "demo", "text": text} | controls).items()}
    foot.link(page, f"Try it yourself: {PAGES[page].called}", link, icon="open_in_new")
