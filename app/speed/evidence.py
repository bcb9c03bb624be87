"""What was measured once and stored: the speed of the kernels by length, what every page costs on a large model, and
how long a moved slider takes."""

import streamlit as st

from analysis.runs.stored import StoredStudy
from app import cached
from app.ui import asking, stored, study, widgets

MEASURED_WITH = "demo"  # attention and models of random weights need no trained one; sliders are moved on this one


def show() -> None:
    """The studies, one under the other."""
    widgets.each(kernels, large_models, sliders)


def kernels() -> None:
    """The speed of attention, of a token after a text and of the bundled model, beside dense."""
    st.header("How fast is sparse attention, by length?", anchor=False, help=cached.glossary("crossover"))
    stored_study = asking.study(MEASURED_WITH, "kernels")[0]
    if stored_study is None:
        stored.missing("How fast sparse attention is", "kernels", reads=False)
        return
    _told("kernels", stored_study, cached.glossary("crossover"))


def large_models() -> None:
    """What the verbs of all pages take on models of real shapes."""
    st.header("What do the pages cost on a large model?", anchor=False)
    wanted = [name for name in asking.study_names(MEASURED_WITH) if name.startswith("pages-")]
    if not wanted:
        stored.missing("What the pages cost on a large model", "pages", reads=False)
    for name in wanted:
        stored_study = asking.study(MEASURED_WITH, name)[0]
        if stored_study is not None:
            _told(name, stored_study)


def sliders() -> None:
    """From the key to the redrawn chart, on the real app."""
    st.header("How long does a moved slider take?", anchor=False)
    stored_study = asking.study(MEASURED_WITH, "sliders")[0]
    if stored_study is None:
        stored.missing("How long a moved slider takes", "sliders", reads=False)
        return
    _told("sliders", stored_study)


def _told(name: str, stored_study: StoredStudy, help: str | None = None) -> None:
    widgets.prose(stored_study.sentence, "more")
    stored.badge(stored_study)
    study.drawn(stored_study, f"speed_{name}", help, name)
