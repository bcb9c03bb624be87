"""Stored studies of the softmax temperature, of models trained with one, and what the paper on Focal Attention prints
beside what is measured here."""

from functools import partial
from typing import Any

import streamlit as st

from analysis import papers
from app import cached
from app.selection.sparsify import FOCAL_STUDIES
from app.ui import plots, studied, tables, widgets

PAPER = "focal_attention"
TABLES = {
    "table 1": "Trained from scratch: constant and learned temperature",
    "table 2": "Adapted: trained further at a temperature",
}


def show() -> None:
    """The studies, one under the other."""
    term = "perplexity against the temperature"
    study = partial(studied.section, "temperature", "What it does to the predictions", term, rows=False)
    widgets.each(partial(study, small=True, corpus=None), _trained, _printed)


def _trained() -> None:
    """Models that were trained with a softmax temperature: the stored studies of it, one at a time."""
    help = cached.glossary("trained with a temperature")
    st.header("Trained with it", anchor=False, help=help)
    titles = {name: title for name, (_, title, _) in FOCAL_STUDIES.items()}
    look: dict[str, Any] = {"format_func": titles.get, "required": True, "label_visibility": "collapsed"}
    st.segmented_control("Study", list(titles), key="trained_with", **look)
    name, title, question = FOCAL_STUDIES[st.session_state["trained_with"]]
    widgets.prose(question, "quiet")
    numbers = studied.opened(name, f"Training small models with a temperature ({title.lower()})")
    if numbers is not None:
        studied.drawn(numbers, "trained", help, name)


def _printed() -> None:
    """Tables 1 and 2 of the paper and the best temperatures of figure 8, each with what it was measured on."""
    st.header("What the paper printed", anchor=False, help=cached.glossary("softmax temperature"))
    best = papers.find(PAPER, "figure 8a")[0]
    where = f"figure 8a, {best.row}; {best.protocol}"
    widgets.prose(f"The paper's best constant temperature of training is {best.value:g} ({where}).", "more")
    for name, title in TABLES.items():
        cells = papers.find(PAPER, name)
        by_setting: dict[str, dict[str, Any]] = {}
        for cell in cells:
            by_setting.setdefault(cell.row, {"setting": cell.row})[cell.column] = cell.value
        titles = dict.fromkeys(cell.column for cell in cells)
        columns = {"setting": tables.Column("setting")}
        columns |= {column: tables.Column(f"{column}, %", "number") for column in titles}
        st.subheader(f"{name.capitalize()}: {title.lower()}", anchor=False)
        rows = list(by_setting.values())
        plots.listed(columns, rows, f"paper_{name[-1]}", f"{name} of the paper", height=200)
        facts = dict.fromkeys(cell.protocol for cell in cells if cell.protocol)
        doubts = dict.fromkeys(f"{cell.row}, {cell.column}: {cell.note}" for cell in cells if cell.note)
        widgets.prose(["; ".join(facts), *doubts], "quiet")
    widgets.prose("Other models and text than ours; the bundled model is too small for these benchmarks.", "quiet")
