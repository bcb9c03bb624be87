"""Quality vs speed: what does reading less cost on this text, and what does it gain on this machine?"""

import streamlit as st

from app.quality import study as equal, tab as quality
from app.selection import state
from app.speed import tab as speed
from app.ui import widgets

TABS = {"quality": "Quality", "speed": "Speed", "equal": "Equal reads"}
HELD = [name for name in state.CONTROLS if name.startswith("speed_")]

widgets.header(
    "What does reading less cost, and what does it gain?",
    "Focus (tables 6 and 7, appendix D) beside StreamingLLM and the ceiling of top-k: quality on this text, live; "
    "speed against the fastest dense path here",
)
chosen = st.session_state
if chosen["tab"] is None:  # a link from before there were tabs names the speed tab by its controls
    timed = any(chosen[name] != state.CONTROLS[name].default for name in HELD)
    state.choose(chosen, tab="speed" if timed else None)
chosen["tab_pick"] = TABS[chosen["tab"] or "quality"]


def switched() -> None:
    """Keep the tab that was opened."""
    state.choose(chosen, tab=next(name for name, label in TABS.items() if label == chosen["tab_pick"]))


shown = st.tabs(list(TABS.values()), key="tab_pick", on_change=switched)
for tab, room in zip(shown, (quality, speed, equal), strict=True):
    if tab.open:
        with tab, widgets.guarded():
            room.tab()
