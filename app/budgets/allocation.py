"""Which head should get how many keys? The stored study: by ranks, by ablation and evenly, with as many keys in all."""

import streamlit as st

from app import cached
from app.ui import stored, study

TERM = "keys shared out by ablation"


def show() -> None:
    """What was found on held-out documents, drawn and in numbers, and how it was made."""
    st.header("By ranks or by ablation?", anchor=False, help=cached.glossary(TERM))
    numbers = stored.opened("allocation", "Whether ranks or ablation share keys out better", small=True)
    if numbers is not None:
        study.drawn(numbers, "budget_allocation", cached.glossary(TERM), "allocation")
