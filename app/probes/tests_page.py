"""Long-context tests: how far back can the model find something and use it, and what remains when it reads less?"""

from functools import partial

import streamlit as st

from app import cached
from app.benchmarks import benchmark_scores
from app.probes import probe_form, probe_results
from app.selection.controls import named
from app.selection.decide import TEST_TABS
from app.ui import asking, screen, studied, widgets
from app.ui.tabs import drawer, tabs


def show() -> None:
    """One test, every test, or benchmarks on files, beside the stored studies."""
    asking.settle_router()
    top = st.empty()
    rooms = {"one": lambda: probe_results.one_test(top), "every": lambda: probe_results.every_test(top)}

    def files() -> None:
        with top:
            screen.answer("What do published benchmarks say of it?", cached.glossary("benchmark score"))
        benchmark_scores.own(probe_form.methods())

    rooms["files"] = files
    if tabs("tests_tab", TEST_TABS, rooms, {"files": named("benchmark_")}):
        top.title(probe_results.QUESTION, anchor=False)
    evidence = (
        partial(studied.section, "length-extension", "Reading beyond its context", "dynamic NTK", rows=False),
        partial(studied.section, "recall-documents", "Where its recall comes from", "recall documents"),
        partial(
            studied.section,
            benchmark_scores.STORED,
            benchmark_scores.TITLE,
            "benchmark score",
            rows=False,
            more=benchmark_scores.by_prompts,
        ),
    )
    drawer("tests_evidence", lambda: widgets.each(*evidence))
