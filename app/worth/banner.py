"""What is decided on, on the pages of quality: these measure the loaded model, so they say whose quality they show."""

from functools import partial
from typing import Any

import streamlit as st

from analysis.commands.quality import Search
from app.selection import state
from app.selection.decide import GPUS, LOADED
from app.ui import widgets
from app.worth import shapes


def show() -> None:
    """One line with the command that measures the chosen model elsewhere; nothing where the loaded one is chosen."""
    shape = st.session_state["shape"]
    if shape == LOADED:
        return
    context = st.session_state["context"]
    facts = [shapes.offered().get(shape, shape), GPUS[shapes.gpu()].split(",")[0].removeprefix("NVIDIA ")]
    facts += [f"{context:,} tokens"] if context else []
    command = Search.from_arguments({"texts": ["TEXT"], "model": shapes.spoken(shape), "lose": 0.05}).command_line()
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="deciding"):
        model = st.session_state["model"]
        widgets.prose(
            f"Deciding for {', '.join(facts)}. The quality below is {model}'s; on your machine: {command}", "note"
        )
        look: dict[str, Any] = {"icon": ":material/close:", "type": "tertiary", "help": "Decide no more"}
        st.button("", key="deciding_end", on_click=partial(state.choose, st.session_state, shape=LOADED), **look)
