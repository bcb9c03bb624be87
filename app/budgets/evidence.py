"""Stored studies behind the budgets: corpora and contexts, how keys are shared out, and whether
the query matters."""

import streamlit as st

from app import cached
from app.ui import plots, studied, tables, widgets

# Of the query router, where a button trains it.
FEW_STEPS = {"steps": 200, "seeds": 1}
PEARSON = {
    "arm": tables.Column("predicted by"),
    "pooled": tables.Column("all heads", "number", 3, help="over all heads, positions and queries together"),
    "within_head": tables.Column("one head", "number", 3, help="within each head"),
    "within_head_and_position": tables.Column("one stretch", "number", 3, help="of positions, within each head"),
}


def corpora() -> None:
    """Several corpora and contexts, as they were measured and stored."""
    st.header("Corpora and contexts", anchor=False, help=cached.glossary("cap"))
    stored = studied.opened("calibration", "The table of corpora and contexts", small=True)
    if stored is not None:
        studied.drawn(stored, "budget_study", name="calibration")


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
    stored = studied.opened("query-router", "Whether the query matters", small=FEW_STEPS)
    if stored is not None:
        st.subheader("Correlation with the keys a query needs", anchor=False)
        plots.listed(PEARSON, stored.numbers["correlations"], "budget_pearson", "Correlations", height=240)
        parameters = stored.numbers["parameters"]
        widgets.prose(f"{parameters:,} parameters. Within one head and stretch only the query can explain it.", "quiet")
        studied.drawn(stored, "budget_router", help, "query-router")
