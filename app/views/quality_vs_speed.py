"""Quality vs speed: what does reading less cost on this text, and what does it gain on this machine?"""

import streamlit as st

from app.quality import study as equal, tab as quality, words
from app.selection import state
from app.selection.controls import named
from app.ui import fields, widgets
from app.ui.tabs import drawer

chosen = st.session_state
if chosen["tab"] is None and (timed := {name for name, one in named("speed_").items() if chosen[name] != one.default}):
    state.choose(chosen, tab="speed" if timed & chosen[state.LINKED] else "quality")
if chosen["tab"] == "speed":  # a link from when Speed was a tab here, and the oldest name it by its controls alone
    state.choose(chosen, tab=None)
    st.switch_page("views/speed.py")
if chosen["tab"] == "equal":
    state.choose(chosen, quality_evidence=True, tab="quality")


def live() -> None:
    """What the page is about, what the controls answer, and the studies of what the methods save."""
    widgets.header("What does reading less cost, and what does it gain?", words.SUBTITLES[chosen["quality_saves"]])
    with widgets.guarded():
        quality.page()
    drawer("quality_evidence", equal.show, ["equal_panel"])


fields.alone(live)
