"""What was measured once and stored: the speed of the kernels by length, what every page costs on a large model, and
how long a moved slider takes."""

import streamlit as st

from app import cached
from app.ui import asking, studied, widgets

# Attention and models of random weights need no trained one; sliders are moved on this one.
MEASURED_WITH = "demo"
# The study -> (its question, what it is called where it is missing, a glossary term).
STUDIES = {
    "kernels": ("How fast is sparse attention, by length?", "How fast sparse attention is", "crossover"),
    "gpu-check": ("How fast is it on a GPU?", "How fast it is on a GPU", "crossover"),
    "pages": ("What do the pages cost on a large model?", "What the pages cost on a large model", ""),
    "rehearsal": ("How often does a method make a GPU wait?", "Every method on a GPU that computes shapes alone", ""),
    "memory-growth": ("What memory does a long text take?", "What memory a long text takes", ""),
    "long-text": ("What does a long text take?", "What a long text takes", ""),
    "indexer-shapes": ("What does fitting indexers take?", "What fitting indexers to a large model takes", ""),
    "sliders": ("How long does a moved slider take?", "How long a moved slider takes", ""),
}


def show() -> None:
    """The studies, one under the other."""
    for name in STUDIES:
        with widgets.guarded():
            _one(name)


def _one(name: str) -> None:
    """A study; that of the pages has a file for each model."""
    question, title, term = STUDIES[name]
    help = cached.glossary(term) if term else None
    st.header(question, anchor=False, help=help)
    files = [file for file in asking.study_names(MEASURED_WITH) if file == name or file.startswith(f"{name}-")]
    studies = {file: asking.study(MEASURED_WITH, file)[0] for file in files}
    if not any(studies.values()):
        studied.missing(title, name, reads=False)
    for file, study in studies.items():
        if study is not None:
            widgets.prose(study.sentence, "more")
            studied.badge(study)
            studied.drawn(study, f"speed_{file}", help, file)
