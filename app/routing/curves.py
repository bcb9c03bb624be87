"""Every router at one budget as a table, with what the paper prints, and gap closure (figure 2b)."""

import streamlit as st

from analysis.runs import Run
from app import cached
from app.routing import routing_charts
from app.routing.bucket_routers import ORACLES, ROUTERS, printed
from app.ui import plots, tables, widgets

PAPER = "Qwen2.5-7B, layer 14 head 0, 32 of 1,024 buckets (3.1%), keys over 2,047 back: another model and other text."
GAP = cached.glossary("gap closure")
COLUMNS = {
    "router": tables.Column("router"),
    "recall": tables.Column("recall", "share", full=1.0, help=cached.glossary("recall@l")),
    "recall_interval": tables.Column("95% interval", help=cached.glossary("interval")),
    "selectivity": tables.Column("selectivity", "share", help=cached.glossary("selectivity")),
}
CLOSED = {
    "mean_of_ratios": tables.Column("gap closed, mean of heads", "share", help=GAP),
    "ratio_of_means": tables.Column("gap closed, of the means", "share", help=GAP),
}
PRINTED = {
    "paper_recall": tables.Column("paper: recall", "share", help=PAPER),
    "paper_closure": tables.Column("paper: gap", "share", help=PAPER),
}
WAYS = {"mean_of_ratios": "Mean over heads of each one's ratio", "ratio_of_means": "Ratio of the means over heads"}
# A chart ends there: heads with hardly a gap have ratios without bounds.
SPAN = (-1.5, 2.5)


def table(run: Run, key: str, partition: dict | None = None, title: str = "Every router", paper: bool = True) -> None:
    """Every router at the budget in use, the best first, with what the paper prints for the same share of buckets.
    `partition`: the tables of other buckets than those of the raw keys."""
    numbers = run.numbers | (partition or {})
    visited, buckets = numbers["l"], numbers["buckets"]
    where = f"{visited:g} of {buckets:,} buckets ({visited / buckets:.1%})"
    st.subheader(f"{title} at {where}", anchor=False, help=cached.glossary("bucket routers"))
    closed = {row["router"]: row for row in numbers["closure"]}
    near = {
        f"paper_{measure}": {cell["router"]: cell["value"] for cell in printed(run.numbers["paper"], measure)}
        for measure in ("recall", "closure")
        if paper
    }
    rows = []
    for row in sorted(numbers["means"], key=lambda row: -(row["recall"] or 0)):
        low, high, kind = row.get("recall_low"), row.get("recall_high"), row["router"]
        ends = None if low is None or high is None else f"{100 * low:.1f} to {100 * high:.1f}"
        of_paper = {name: cells.get(kind) for name, cells in near.items()}
        about = {"router": ROUTERS[kind].title, "recall_interval": ends} | of_paper
        rows.append(closed.get(kind, {}) | row | about)
    columns = COLUMNS | (CLOSED if closed else {}) | (PRINTED if paper else {})
    identity = f"{run.id}{run.created}{title}"
    plots.listed(columns, rows, f"{key}_means", "Routers at this budget", identity, height=420)


def closure(numbers: dict) -> None:
    """Two charts on one scale, one for each way to take the mean; the paper takes the first."""
    rows = numbers["closures"]
    if not rows:
        widgets.prose("There is no gap to close here: symmetric k-means finds as much as the learned router.", "note")
        return
    learned = [row for row in rows if row["router"] not in ("random", *ORACLES)]
    values = [row[way] for row in learned for way in WAYS if row[way] is not None]
    span = max(SPAN[0], min([0.0, *values]) - 0.1), min(SPAN[1], max([1.0, *values]) + 0.15)
    at_budget = next(row for row in numbers["closure"] if row["router"] == "gwr_linear")
    if None not in (at_budget["mean_of_ratios"], at_budget["ratio_of_means"]):
        widgets.prose(
            f"At {numbers['l']:g} buckets GWR linear closes {at_budget['mean_of_ratios']:.1%} of the gap as the mean "
            f"over heads and {at_budget['ratio_of_means']:.1%} as the ratio of the means; the paper prints 69.8% for "
            "the mean over its six heads, and 63.6% for one head.",
            "more",
        )
    with st.grid(2, min_column_width=420, gap="large"):
        for way, title in WAYS.items():
            figure = routing_charts.closure(rows, way, numbers["buckets"], numbers["l"], span)
            listed = plots.columns(rows, "router", "l", way, *plots.interval(way))
            plots.draw(figure, listed, title, f"routing_{way}", "gap closure")
    st.caption(
        "0 is symmetric k-means, 100% the learned router. Heads whose gap is below 0.1% are left out. What lies beyond "
        f"{SPAN[0]:.0%} to {SPAN[1]:.0%} is cut off."
    )
