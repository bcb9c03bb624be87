"""The small app's only page: a field for files, a part that asks again, and a last line that comes after it has."""

import streamlit as st

from tests.made.small.late import called

WAIT = 60  # seconds, for a machine that others use


@st.fragment(run_every=0.01)
def part() -> None:
    """What asks again while the page is drawn."""
    st.text("a part")


called.clear()
st.file_uploader("Files", key="files")
part()
called.wait(WAIT)
st.text("the last line")
