"""Quality vs speed: what does reading less cost on this text, and what does it gain on this machine?"""

import streamlit as st

from app.quality import study as equal, tab as quality
from app.quality.controls import TABS
from app.selection import state
from app.speed import tab as speed
from app.speed.controls import CONTROLS as SPEED
from app.ui import widgets
from app.ui.tabs import tabs

widgets.header(
    "What does reading less cost, and what does it gain?",
    "Focus (tables 6 and 7, appendix D) beside StreamingLLM and the oracle top-k: quality on this text, live; "
    "speed against the fastest dense path here",
)
chosen = st.session_state
if chosen["tab"] is None:  # a link from before there were tabs names the speed tab by its controls
    timed = any(chosen[name] != control.default for name, control in SPEED.items())
    state.choose(chosen, tab="speed" if timed else None)
tabs("tab", TABS, {"quality": quality.tab, "speed": speed.tab, "equal": equal.tab})
