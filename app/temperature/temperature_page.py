"""Softmax temperature: what does sharpening do?"""

import streamlit as st

from analysis.commands.temperature import Temperature
from app.selection.sparsify import SOFTMAX, TEMPERATURE_TABS
from app.temperature import evidence, sharpened
from app.ui import asking
from app.ui.reading import reading
from app.ui.tabs import drawer, tabs


def show() -> None:
    """One token, every head, or the predictions at another softmax temperature."""
    _, tokens = reading(
        "What does sharpening do?",
        "Focal Attention: scores divided by a temperature below 1 before the softmax, so that fewer tokens are read",
        Temperature,
        "Measuring every temperature from the queries and keys of this text",
        shared=(),
        t=list(SOFTMAX),
    )
    tabs(
        "temperature_tab",
        TEMPERATURE_TABS,
        {
            "token": lambda: sharpened.one_token(tokens),
            "heads": lambda: sharpened.every_head(tokens),
            "text": lambda: sharpened.perplexity(
                asking.card(st.session_state["model"])["layers"], len(tokens["piece"])
            ),
        },
        {"heads": ["sharpness"], "text": ["by_layer"]},
    )
    drawer("temperature_evidence", evidence.show, ["trained_with"])
