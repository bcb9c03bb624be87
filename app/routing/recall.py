"""Recall and selectivity of every router: the two charts of figure 2a, and the table at one budget."""

from collections.abc import Sequence

import streamlit as st

from app import cached
from app.routing import charts
from app.routing.words import ROUTERS, interval, printed, share
from app.ui import tables, widgets


def show(numbers: dict, key: str, identity: str, paper: bool = True) -> None:
    """The chart of recall, the table at the budget in use, the chart of selectivity. `numbers` of a routing verb."""
    routers = {row["router"] for row in numbers["means"]}
    beside = [row for row in numbers["paper"] if row["router"] in routers] if paper else []
    _chart(numbers, "recall", printed(beside, "recall"), key, "recall@l")
    table(numbers, beside, key, identity)
    _chart(numbers, "selectivity", printed(beside, "selectivity"), key, "selectivity")


def _chart(numbers: dict, measure: str, beside: Sequence[dict], key: str, term: str) -> None:
    rows, buckets = numbers["curve"], numbers["buckets"]
    listed = {name: [row[name] for row in rows] for name in ("router", "l", "share", measure)}
    listed |= {name: [row[name] for row in rows] for name in (f"{measure}_low", f"{measure}_high")}
    widgets.chart(
        charts.budgets(numbers.get("lines", {}), rows, beside, measure, buckets, numbers["l"]),
        listed,
        title=f"{measure.capitalize()} against buckets visited",
        key=f"{key}_{measure}",
        alt=f"{measure.capitalize()} of every router against the share of the buckets visited, the chosen one marked",
        help=cached.glossary(term),
    )


def table(numbers: dict, paper: Sequence[dict], key: str, identity: str, title: str = "Every router") -> None:
    """Every router at the budget in use, the best first, with what the paper prints for the same share of buckets."""
    where = share(numbers["l"], numbers["buckets"])
    st.subheader(f"{title} at {where}", anchor=False, help=cached.glossary("bucket routers"))
    rows = sorted(numbers["means"], key=lambda row: -(row["recall"] or 0))
    closed = {row["router"]: row for row in numbers["closure"]}
    near = {
        name: {row["router"]: row["value"] for row in printed(paper, name) if row["l"] == 32}
        for name in ("recall", "closure")
    }
    kinds = [row["router"] for row in rows]
    values = {
        "router": [ROUTERS[kind].title for kind in kinds],
        "recall": [row["recall"] for row in rows],
        "recall_interval": [interval(row, "recall") for row in rows],
        "selectivity": [row["selectivity"] for row in rows],
        "mean_of_ratios": [closed.get(kind, {}).get("mean_of_ratios") for kind in kinds],
        "ratio_of_means": [closed.get(kind, {}).get("ratio_of_means") for kind in kinds],
        "paper_recall": [near["recall"].get(kind) for kind in kinds],
        "paper_closure": [near["closure"].get(kind) for kind in kinds],
    }
    gap = cached.glossary("gap closure")
    columns = {
        "router": tables.Column("router"),
        "recall": tables.Column("recall", "share", full=1.0, help=cached.glossary("recall@l")),
        "recall_interval": tables.Column("95% interval", help=cached.glossary("interval")),
        "selectivity": tables.Column("selectivity", "share", help=cached.glossary("selectivity")),
    }
    if closed:
        columns["mean_of_ratios"] = tables.Column("gap closed, mean of heads", "share", help=gap)
        columns["ratio_of_means"] = tables.Column("gap closed, of the means", "share", help=gap)
    if paper:
        columns["paper_recall"] = tables.Column("paper: recall", "share", help=PAPER)
        columns["paper_closure"] = tables.Column("paper: gap", "share", help=PAPER)
    columns_shown = {name: values[name] for name in columns}
    tables.table(
        columns, columns_shown, key=f"{key}_means", identity=identity, label="Routers at this budget", height=420
    )
    widgets.numbers(columns_shown, "routers", f"{key}_means_numbers")


PAPER = "Qwen2.5-7B, layer 14 head 0, 32 of 1,024 buckets (3.1%), keys over 2,047 back: another model and other text."
