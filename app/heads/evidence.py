"""What stands behind the names of heads: whether induction heads carry repetition, and which models get them at all."""

import streamlit as st

from app import cached
from app.ui import asking, stored, study, widgets

TRAINED_WITH = "demo"  # the study of training makes its models itself; it is stored beside this one


def show() -> None:
    """Both studies, one under the other."""
    widgets.each(without_them, trained)


def without_them() -> None:
    """What the model in use loses without its induction heads."""
    st.header("Do induction heads carry what repetition gains?", anchor=False, help=cached.glossary("induction score"))
    numbers = stored.opened("induction", "Whether induction heads carry repetition", reads=False)
    if numbers is not None:
        study.drawn(numbers, "heads_induction", cached.glossary("induction score"))


def trained() -> None:
    """Small models trained to look back, with and without normalised queries and keys, whichever model is in use."""
    st.header("Which models learn to look back?", anchor=False, help=cached.glossary("induction score"))
    numbers = asking.study(TRAINED_WITH, "circuit")[0]
    if numbers is None:
        stored.missing("Which models learn to look back", "circuit", reads=False)
        return
    widgets.prose(numbers.sentence, "more")
    stored.badge(numbers)
    study.drawn(numbers, "heads_circuit", cached.glossary("induction score"))
