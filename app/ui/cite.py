"""BibTeX of the papers that a page rests on: its own, and those of the methods whose results it shows."""

import streamlit as st

from analysis.papers.references import bibtex
from app import cached

TITLE = "Cite: BibTeX of the papers behind this page"
PAPERS = {  # address of a page -> the papers that it is about, whatever it shows
    "token-groups": ("focus",),
    "long-range-pairs": ("focus",),
    "train-a-router": ("focus",),
    "softmax-temperature": ("focal_attention",),
    "kv-budgets": ("calibrated_sparse_attention",),
    "routing": ("gwr_linear_routing",),
    "long-context-tests": ("ruler",),
    "papers-vs-measured": ("focus", "focal_attention", "calibrated_sparse_attention", "gwr_linear_routing"),
}


def show(page: str) -> None:
    """At the end of a page, folded away; nothing where no paper is behind it."""
    methods = [method.get("name", "") for run in cached.seen() for method in _asked(run.request)]
    entries = bibtex([*PAPERS.get(page, ()), *methods])
    if not entries:
        return
    expander = st.expander(TITLE, icon=":material/menu_book:", key="cite", on_change="rerun")
    if expander.open:
        with expander:
            st.code(entries, language="bibtex", wrap_lines=True)


def _asked(request: dict) -> list[dict]:
    """The methods that a run was asked about."""
    return [method for method in [*(request.get("methods") or []), request.get("method")] if isinstance(method, dict)]
