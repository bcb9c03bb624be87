"""Quality vs speed: what does reading less cost on this text, and what does it gain on this machine?"""

from typing import Any

import streamlit as st

from app import cached
from app.quality import evidence, prompts, reads
from app.selection import state
from app.selection.controls import named
from app.selection.decide import EQUAL_SHARES, SAVES
from app.ui import fields, foot, widgets
from app.ui.tabs import drawer

SUBTITLES = {  # by what the methods save
    "reads": "Focus (tables 6 and 7, appendix D) beside StreamingLLM and Oracle top-k: quality on this text, live; "
    "speed against the fastest dense path here",
    "memory": "Rules that drop keys once a prompt is read, such as SnapKV and Ada-KV: quality of what follows on this "
    "text; the KV cache that is held",
    "prefill": "Methods that read some blocks of a prompt, such as XAttention and FlexPrefill: quality of what follows "
    "on this text; time of the prompt",
}


def show() -> None:
    """All of it is redrawn alone. Links from when Speed was a tab here lead there; the oldest name it by its controls
    alone."""
    chosen = st.session_state
    timed = {name for name, one in named("speed_").items() if chosen[name] != one.default}
    if chosen["tab"] is None and timed:
        state.choose(chosen, tab="speed" if timed & chosen[state.LINKED] else "quality")
    if chosen["tab"] == "speed":
        state.choose(chosen, tab=None)
        foot.go("speed")
    if chosen["tab"] == "equal":
        state.choose(chosen, quality_evidence=True, tab="quality")
    fields.alone(_live)


def _live() -> None:
    """What the page is about, what the methods save, a budget for all of them, and the studies of that family."""
    chosen = st.session_state
    saves = chosen["quality_saves"]
    widgets.header("What does reading less cost, and what does it gain?", SUBTITLES[saves])
    with widgets.guarded():
        with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
            look: dict[str, Any] = {"format_func": SAVES.get, "required": True}
            st.segmented_control("What the methods save", list(SAVES), key="quality_saves", **look)
            look = {"format_func": "{}%".format, "help": cached.glossary("equal reads")}
            st.segmented_control("Same budget for all", EQUAL_SHARES, key="quality_equal", **look)
        percent = chosen["quality_equal"]
        share = None if percent is None else percent / 100
        if saves == "reads":
            reads.tab(share)
        else:
            prompts.tab(saves, share)
    drawer("quality_evidence", evidence.show, ["equal_panel"])
