"""The first screen of a page: the answer in one sentence, the picture, and the card that stands beside it."""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app.ui import widgets


def answer(sentence: str, hint: str | None = None, scope: str | None = None) -> None:
    """What the page found, in at most 15 words, as its title. `hint`: chance level, interval and definition, shown on
    hover; `scope`: what was read, such as "first 2,048 of 17,714 tokens"."""
    st.title(sentence, anchor=False, help=hint)
    if scope:
        widgets.prose(scope, "quiet")


def picture_and_card(key: str, card: float = 0.5) -> tuple[DeltaGenerator, DeltaGenerator]:
    """Two places side by side: the picture, and what belongs to it, which stays in view while the picture scrolls.
    `card`: its width as a share of the picture's."""
    with st.container(key=f"screen_{key}"):
        picture, beside = st.columns([1.0, card], gap="medium")
    return picture, beside
