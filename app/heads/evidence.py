"""Why some models find repeats and others do not: small models trained for it, with and without normalised queries."""

import streamlit as st

from app import cached
from app.ui import asking, stored, study, widgets

TRAINED_WITH = "demo"  # the study makes its models itself; it is stored beside this one


def show() -> None:
    """The study's sentence and its curves, whichever model is in use."""
    st.header("Which models learn to look back?", anchor=False, help=cached.glossary("induction score"))
    found = asking.studies(TRAINED_WITH)[0].get("circuit")
    if found is None:
        stored.missing("Which models learn to look back", "circuit", reads=False)
        return
    widgets.prose(found["sentence"], "more")
    stored.badge(found)
    study.panels(found, "heads_circuit", cached.glossary("induction score"))
    widgets.prose(found["notes"], "quiet")
    stored.made(found)
