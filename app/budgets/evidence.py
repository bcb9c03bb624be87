"""Stored studies behind the budgets: corpora and contexts with the paper's table, how keys are shared out, and whether
the query matters."""

import streamlit as st

from analysis import papers
from app import cached
from app.ui import plots, studied, tables, widgets

PAPER = "calibrated_sparse_attention"
PEARSON = {
    "arm": tables.Column("predicted by"),
    "pooled": tables.Column("all heads", "number", 3, help="over all heads, positions and queries together"),
    "within_head": tables.Column("one head", "number", 3, help="within each head"),
    "within_head_and_position": tables.Column("one stretch", "number", 3, help="of positions, within each head"),
}


def corpora() -> None:
    """Several corpora and contexts, as they were measured and stored, and the paper's own table."""
    st.header("Corpora and contexts", anchor=False, help=cached.glossary("cap"))
    stored = studied.opened("calibration", "The table of corpora and contexts", small=True)
    if stored is not None:
        studied.drawn(stored, "budget_study", name="calibration")
    by_model: dict[str, dict[str, str]] = {}
    for cell in papers.find(PAPER, "table 1"):
        by_model.setdefault(cell.row, {"model": cell.row})[cell.column] = str(cell.value)
    rows = list(by_model.values())
    columns = {name: tables.Column(name) for row in rows for name in row}
    st.subheader("What the paper printed", anchor=False)
    plots.listed(columns, rows, "budget_paper", "Table 1 of the paper", height=330)
    widgets.prose("Other models and text than ours, on no common scale; tolerances are not stated.", "quiet")


def allocation() -> None:
    """Which head should get how many keys: by ranks, by ablation and evenly, with as many keys in all."""
    help = cached.glossary("keys shared out by ablation")
    st.header("By ranks or by ablation?", anchor=False, help=help)
    stored = studied.opened("allocation", "Whether ranks or ablation share keys out better", small=True)
    if stored is not None:
        studied.drawn(stored, "budget_allocation", help, "allocation")


def query() -> None:
    """Whether the query matters: the stored ablation of a network that predicts how many keys a query needs."""
    help = cached.glossary("query router")
    st.header("Does the query matter?", anchor=False, help=help)
    stored = studied.opened("query-router", "Whether the query matters")
    if stored is not None:
        st.subheader("Correlation with the keys a query needs", anchor=False)
        plots.listed(PEARSON, stored.numbers["correlations"], "budget_pearson", "Correlations", height=240)
        parameters = stored.numbers["parameters"]
        widgets.prose(f"{parameters:,} parameters. Within one head and stretch only the query can explain it.", "quiet")
        studied.drawn(stored, "budget_router", help, "query-router")
    printed = "; ".join(
        f"{cell.row}: {cell.value:g}" for cell in papers.find(PAPER, "section routing", column="Pearson")
    )
    widgets.prose(f"The paper prints the correlation over all heads together ({printed}).", "quiet")
