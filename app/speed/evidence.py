"""What was measured once and stored: the speed of the kernels by length, and what every page costs on a large model."""

import streamlit as st

from app import cached
from app.ui import asking, stored, study, widgets

MEASURED_WITH = "demo"  # attention and models of random weights need no trained one; they are stored beside it


def show() -> None:
    """Both studies, one under the other."""
    widgets.each(kernels, large_models)


def kernels() -> None:
    """The speed of attention, of a token after a text and of the bundled model, beside dense."""
    st.header("How fast is sparse attention, by length?", anchor=False, help=cached.glossary("crossover"))
    found = asking.study(MEASURED_WITH, "kernels")[0]
    if found is None:
        stored.missing("How fast sparse attention is", "kernels", reads=False)
        return
    _told("kernels", found)


def large_models() -> None:
    """What the verbs of all pages take on models of real shapes."""
    st.header("What do the pages cost on a large model?", anchor=False)
    wanted = [name for name in asking.study_names(MEASURED_WITH) if name.startswith("pages-")]
    if not wanted:
        stored.missing("What the pages cost on a large model", "pages", reads=False)
    for name in wanted:
        found = asking.study(MEASURED_WITH, name)[0]
        if found is not None:
            _told(name, found)


def _told(name: str, found: dict) -> None:
    widgets.prose(found["sentence"], "more")
    stored.badge(found)
    if found.get("panels"):
        study.panels(found, f"speed_{name}", cached.glossary("crossover"))
    study.rows(name, found, f"speed_{name}")
    widgets.prose(found["notes"], "quiet")
    stored.made(found)
