"""Stored studies behind KV budgets: corpora and contexts with the paper's table, how keys are shared out, and whether
the query matters."""

import streamlit as st

from analysis import papers
from analysis.claims import Comparison
from app import cached
from app.budgets import budget_charts
from app.budgets.budget_words import signed
from app.ui import plots, studied, tables, widgets

PAPER = "calibrated_sparse_attention"
LIMIT = "one-sided 95% limit over those documents"
CORPORA = {
    "corpus": tables.Column("corpus"),
    "context": tables.Column("context", "whole"),
    "perplexity_dense": tables.Column("dense", "number", help="perplexity of dense attention"),
    "cap": tables.Column("cap", "whole"),
    "beta": tables.Column("beta", "number", 0, help="keys in total, divided by the sum of the ranks"),
    "reads_causal": tables.Column("reads, of causal pairs", "share"),
    "reads_full": tables.Column("reads, of T × T", "share"),
    "difference": tables.Column("change", "share", help="of perplexity, on documents that chose nothing"),
    "upper": tables.Column("at most", "share", help=LIMIT),
    "worst_bin_difference": tables.Column("change, worst stretch", "share"),
    "worst_bin_upper": tables.Column("at most", "share", help=LIMIT),
    "units": tables.Column("documents", "whole"),
    "verdict": tables.Column("on other texts"),
}
PEARSON = {
    "arm": tables.Column("predicted by"),
    "pooled": tables.Column("all heads", "number", 3, help="over all heads, positions and queries together"),
    "within_head": tables.Column("one head", "number", 3, help="within each head"),
    "within_head_and_position": tables.Column("one stretch", "number", 3, help="of positions, within each head"),
}
ROUTED = {
    "cap": tables.Column("cap", "whole"),
    "arm": tables.Column("budgets"),
    "perplexity": tables.Column("perplexity", "number"),
    "change": tables.Column("against dense"),
    "static": tables.Column("against static (95% interval)"),
    "attended": tables.Column("keys of a query", "number", 1),
}


def corpora() -> None:
    """Several corpora and contexts, as they were measured and stored, and the paper's own table."""
    st.header("Corpora and contexts", anchor=False, help=cached.glossary("cap"))
    numbers = studied.opened("calibration", "The table of corpora and contexts", small=True)
    if numbers is not None:
        columns = {name: about for name, about in CORPORA.items() if name in numbers.rows[0]}
        plots.listed(columns, numbers.rows, "budget_study", "Corpora and contexts", height=280)
        studied.made(numbers)
    with st.expander("What the paper printed", icon=":material/menu_book:"):
        by_model: dict[str, dict[str, str]] = {}
        for cell in papers.find(PAPER, "table 1"):
            by_model.setdefault(cell.row, {"model": cell.row})[cell.column] = str(cell.value)
        rows = list(by_model.values())
        columns = {name: tables.Column(name) for row in rows for name in row}
        table = plots.columns(rows, *columns)
        tables.table(columns, table, key="budget_paper", identity="", label="Table 1 of the paper", height=330)
        widgets.prose("Other models and text than ours, on no common scale; tolerances are not stated.", "quiet")


def allocation() -> None:
    """Which head should get how many keys: by ranks, by ablation and evenly, with as many keys in all."""
    help = cached.glossary("keys shared out by ablation")
    st.header("By ranks or by ablation?", anchor=False, help=help)
    numbers = studied.opened("allocation", "Whether ranks or ablation share keys out better", small=True)
    if numbers is not None:
        studied.drawn(numbers, "budget_allocation", help, "allocation")


def query() -> None:
    """Whether the query matters: the stored ablation of a network that predicts how many keys a query needs."""
    st.header("Does the query matter?", anchor=False, help=cached.glossary("query router"))
    numbers = studied.study("query-router")
    if numbers is None:
        studied.missing("Whether the query matters", "query-router")
        _paper()
        return
    studied.told("query-router", numbers)
    widgets.prose(numbers.notes, "quiet")
    rows = [row | {"change": signed(row["difference"]), "static": _static(row)} for row in numbers.rows if row["cap"]]
    with st.grid(2, min_column_width=360, gap="medium"):
        with st.container():
            st.subheader("Correlation with the keys a query needs", anchor=False, help=cached.glossary("query router"))
            plots.listed(PEARSON, numbers.numbers["correlations"], "budget_pearson", "Correlations", height=240)
            widgets.prose(
                f"{numbers.numbers['parameters']:,} parameters. Over all heads together, most of the correlation comes "
                "from the head alone; within one head and one stretch of positions only the query can explain it.",
                "quiet",
            )
        figure = budget_charts.router(rows)
        plots.draw(figure, plots.columns(rows, *ROUTED), "Perplexity at equal keys", "budget_router", "query router")
    plots.listed(ROUTED, rows, "budget_router_table", "Budgets at equal keys", height=300)
    _paper()
    studied.made(numbers)


def _static(row: dict) -> str:
    against_static = Comparison.of(row, "against_static", "against_", unit="change")
    return "–" if row["arm"] == "static" else against_static.bracketed


def _paper() -> None:
    cells = papers.find(PAPER, "section routing", column="Pearson")
    printed = "; ".join(f"{cell.row}: {cell.value:g}" for cell in cells)
    widgets.prose(
        f"The paper prints the correlation over all heads together ({printed}). Differences between heads make up "
        "most of such a number.",
        "quiet",
    )
