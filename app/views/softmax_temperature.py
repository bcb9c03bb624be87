"""Softmax temperature: what does sharpening do?"""

import streamlit as st

from app.temperature import live as temperature, paper, quality, trained
from app.temperature.controls import SOFTMAX
from app.ui import asking, widgets
from app.ui.reading import reading

_, tokens = reading(
    "What does sharpening do?",
    "Focal Attention: scores divided by a temperature below 1 before the softmax, so that fewer tokens are read",
    "temperature",
    "Measuring every temperature from the queries and keys of this text",
    shared=(),
    t=list(SOFTMAX),
)
temperature.live(tokens)
size, card = len(tokens["piece"]), asking.card(st.session_state["model"])
widgets.each(
    quality.study,
    lambda: quality.this_text(size),
    lambda: quality.by_layer(card["layers"], size),
    trained.show,
    paper.show,
)
