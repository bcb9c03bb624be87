"""Measured here: what a method with a kernel gains on the loaded model, and the button that times it."""

import streamlit as st

from app import cached
from app.selection.decide import LOADED
from app.speed import methods
from app.ui import widgets


def show() -> None:
    """The answer where one was measured, else the button. A model that was not loaded here is loaded for a click."""
    model = st.session_state["model"]
    if cached.card(model) is None and not st.button(f"Load {model} to time it", key="measured_load"):
        return
    methods.settle()
    with st.container(key="measured_here", gap="small"):
        st.subheader("Measured here", anchor=False)
        with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
            with st.container(width=232):
                method = methods.choose()
            request = methods.request(method)
            stored = cached.store().find(request)
            methods.button(request, stored)
        other = "" if st.session_state["shape"] == LOADED else f" of {model}, the loaded model, not of the shape above"
        if stored is None:
            widgets.prose(f"Times prompt and tokens{other}, dense and sparse in turns.", "quiet")
        else:
            widgets.prose(methods.said(stored))
            widgets.prose(
                f"Timed on {model} at {stored.numbers['length']:,} tokens{other and ', not the shape above'}.", "quiet"
            )
