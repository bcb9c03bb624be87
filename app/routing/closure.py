"""Gap closure against the buckets visited, averaged both ways (figure 2b)."""

import streamlit as st

from app import cached
from app.routing import charts
from app.routing.words import printed_closure
from app.ui import widgets

WAYS = {
    "mean_of_ratios": "Mean over heads of each one's ratio",
    "ratio_of_means": "Ratio of the means over heads",
}
SPAN = (-1.5, 2.5)  # a chart ends there: heads with hardly a gap have ratios without bounds


def show(numbers: dict) -> None:
    """Two charts on one scale; only the first has the paper's, which averages so."""
    rows = numbers["closures"]
    if not rows:
        widgets.prose("There is no gap to close here: symmetric k-means finds as much as the learned router.", "note")
        return
    values = [
        row[way] for row in rows for way in WAYS if row["router"] not in ("random", "oracle") and row[way] is not None
    ]
    low, high = max(SPAN[0], min([0.0, *values]) - 0.1), min(SPAN[1], max([1.0, *values]) + 0.15)
    widgets.prose(_said(numbers), "more")
    with st.grid(2, min_column_width=420, gap="large"):
        for way, title in WAYS.items():
            columns = {name: [row[name] for row in rows] for name in ("router", "l", way, f"{way}_low", f"{way}_high")}
            beside = printed_closure(numbers["paper"]) if way == "mean_of_ratios" else []
            widgets.chart(
                charts.closure(rows, beside, way, numbers["buckets"], numbers["l"], (low, high)),
                columns,
                title=title,
                key=f"routing_{way}",
                alt="Gap closure of every router against the share of the buckets visited",
                help=cached.glossary("gap closure"),
            )
    beyond = any(not SPAN[0] <= value <= SPAN[1] for value in values)
    cut = (
        f" The chart cuts off what lies outside of {SPAN[0]:.0%} to {SPAN[1]:.0%}; the tables have it."
        if beyond
        else ""
    )
    st.caption("0 is symmetric k-means, 100% the learned router. Heads whose gap is below 0.1% are left out." + cut)


def _said(numbers: dict) -> str:
    row = next(row for row in numbers["closure"] if row["router"] == "gwr_linear")
    if row["mean_of_ratios"] is None or row["ratio_of_means"] is None:
        return "The learned router and symmetric k-means find the same here, so there is no gap to close."
    return (
        f"At {numbers['l']:g} buckets GWR linear closes {row['mean_of_ratios']:.1%} of the gap as the mean over heads "
        f"and {row['ratio_of_means']:.1%} as the ratio of the means; the paper prints 69.8% for the mean over its six "
        "heads, and 63.6% for one head."
    )
