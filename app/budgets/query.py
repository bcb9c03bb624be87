"""Does the query matter? The stored ablation of a network that predicts how many keys a query needs."""

import streamlit as st

from analysis import papers
from analysis.claims import Comparison
from app import cached
from app.budgets import charts
from app.budgets.words import signed
from app.ui import stored, tables, widgets

PEARSON = {
    "arm": tables.Column("predicted by"),
    "pooled": tables.Column("all heads", "number", 3, help="over all heads, positions and queries together"),
    "within_head": tables.Column("one head", "number", 3, help="within each head"),
    "within_head_and_position": tables.Column(
        "one stretch", "number", 3, help="within each head and stretch of positions"
    ),
}
ROWS = {
    "cap": tables.Column("cap", "whole"),
    "arm": tables.Column("budgets"),
    "perplexity": tables.Column("perplexity", "number"),
    "change": tables.Column("against dense"),
    "static": tables.Column("against static (95% interval)"),
    "attended": tables.Column("keys of a query", "number", 1),
}


def study() -> None:
    """The conclusion first, then what it stands on; without a study, the command that makes it."""
    st.header("Does the query matter?", anchor=False, help=cached.glossary("query router"))
    numbers = stored.study("query-router")
    if numbers is None:
        widgets.prose(
            "A small network predicts how many keys a query needs, from the query, its norm, its position and its "
            "head. Then the query is set to zero in the test, or left out of the training. Where the prediction stays "
            "as good, the query does not matter.",
            "more",
        )
        stored.missing("Whether the query matters", "query-router")
        _paper()
        return
    stored.told("query-router", numbers)
    widgets.prose(numbers.notes, "quiet")
    with st.grid(2, min_column_width=360, gap="medium"):
        with st.container():
            st.subheader("Correlation with the keys a query needs", anchor=False, help=cached.glossary("query router"))
            rows = numbers.numbers["correlations"]
            values = {name: [row[name] for row in rows] for name in PEARSON}
            tables.table(PEARSON, values, key="budget_pearson", identity="pearson", label="Correlations", height=240)
            widgets.numbers(values, "correlations", "budget_pearson_rows")
            widgets.prose(
                f"{numbers.numbers['parameters']:,} parameters. Over all heads together, most of the correlation comes "
                "from the head alone; within one head and one stretch of positions only the query can explain it.",
                "quiet",
            )
        with st.container():
            rows = [row for row in numbers.rows if row["cap"]]
            values = {name: [row[name] for row in rows] for name in ROWS if name not in ("change", "static")}
            values |= {"change": [signed(row["difference"]) for row in rows], "static": [_static(row) for row in rows]}
            widgets.chart(
                charts.router(rows),
                {name: values[name] for name in ROWS},
                title="Perplexity at equal keys",
                key="budget_router",
                alt="Change of perplexity under each cap, static budgets and predicted ones at equal mean budget",
                help=cached.glossary("query router"),
            )
    tables.table(ROWS, values, key="budget_router_table", identity="router", label="Budgets at equal keys", height=300)
    _paper()
    stored.made(numbers)


def _static(row: dict) -> str:
    if row["arm"] == "static":
        return "–"
    return Comparison.of(row, "against_static", "against_", unit="change").bracketed


def _paper() -> None:
    cells = papers.find("calibrated_sparse_attention", "section routing", column="Pearson")
    printed = "; ".join(f"{cell.row}: {cell.value:g}" for cell in cells)
    widgets.prose(
        f"The paper prints only Pearson printed over all heads together ({printed}). Differences between heads make "
        "up most of such a number.",
        "quiet",
    )
