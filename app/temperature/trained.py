"""Models that were trained with a softmax temperature: the stored studies of it, one at a time."""

import streamlit as st

from app import cached
from app.selection.sparsify import FOCAL_STUDIES
from app.ui import stored, study, widgets


def show() -> None:
    """The chosen study: its question and sentence, its panels and rows, its command."""
    st.header("Trained with it", anchor=False, help=cached.glossary("trained with a temperature"))
    st.segmented_control(
        "Study",
        list(FOCAL_STUDIES),
        format_func=lambda name: FOCAL_STUDIES[name][1],
        key="trained_with",
        required=True,
        label_visibility="collapsed",
    )
    name, title, question = FOCAL_STUDIES[st.session_state["trained_with"]]
    widgets.prose(question, "quiet")
    numbers = stored.opened(name, f"Training small models with a temperature ({title.lower()})")
    if numbers is not None:
        study.drawn(numbers, "trained", cached.glossary("trained with a temperature"), name)


def best() -> str:
    """The constant temperature with the lowest loss among the models trained from scratch, in one clause; or none."""
    trained_study = stored.study("focal-temperatures")
    rows = [
        row for row in (trained_study.rows if trained_study else []) if row["t"] and row["norm"] and not row["further"]
    ]
    if len(rows) < 2:
        return ""
    lowest = min(rows, key=lambda row: row["loss"])
    return (
        f" Of small models trained here from scratch with a constant temperature, the one with t = {lowest['t']:g} has "
        f"the lowest loss; whether it beats dense training stands above, under “{FOCAL_STUDIES['temperatures'][1]}”."
    )
