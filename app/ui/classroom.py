"""Classroom mode, for the last row: large type, one part of a page after the other, no tables. It stands in the URL."""

import streamlit as st

TYPE = 17  # pixels of the letters in a chart
STYLE = """<style>
.stMain { --fs-type: 1.35; scroll-snap-type: y proximity; }
.stMain :is(h2, h3) { scroll-snap-align: start; scroll-margin-top: 4rem; }
.stMain .fs-lead { font-size: 1.7rem; max-width: 70rem; }
.stMain .fs-more { font-size: 1.35rem; max-width: 70rem; }
.stMain .fs-quiet, .stMain .fs-note, .stMain .fs-brand { font-size: 1.1rem; }
.stMain [data-testid="stGrid"] { grid-template-columns: minmax(0, 1fr); }
</style>"""


def on() -> bool:
    """Whether the page is shown to a class."""
    return bool(st.session_state.get("classroom"))


def menu() -> None:
    """The switch, in the bar on top."""
    with st.popover("View", icon=":material/co_present:", key="view_menu"):
        st.toggle("Classroom", key="classroom")
        st.caption("Large type, one part after the other, no tables. The link keeps it.")
