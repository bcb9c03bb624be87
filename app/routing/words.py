"""Bucket routers in words: what each is called and looks like, and what the paper printed of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.ui import tables


@dataclass(frozen=True)
class Look:
    """How a router stands on a chart and in a table: colour, dash and marker say the same."""

    title: str
    about: str
    colour: str
    dash: str
    symbol: str


ROUTERS = {
    "oracle": Look("oracle", "the best that any choice could do", "#7F8A93", "dash", "star"),
    "mlp": Look("Saap-style MLP", "two layers per head, trained", "#AA3377", "solid", "diamond"),
    "mlp_squared": Look(
        "Saap-style MLP, squared error", "the same, with the loss of GWR", "#C27AAE", "dash", "star-diamond"
    ),
    "linear_cross_entropy": Look(
        "linear, cross-entropy", "one matrix per head, with the loss of the MLP", "#6E88D6", "dashdot", "diamond-open"
    ),
    "gwr_linear": Look("GWR linear", "mass from the query by least squares", "#1483B0", "solid", "circle"),
    "gwr_linear_intercept": Look(
        "GWR linear with intercept", "the same, with a constant", "#239ABD", "dashdot", "circle-open"
    ),
    "static_prior": Look("static prior", "the same buckets for every query", "#AB880A", "dash", "square"),
    "recency": Look("recency", "the buckets of the newest keys", "#5E9A6B", "dash", "triangle-up"),
    "kmeans": Look("symmetric k-means", "the centroids nearest to the query", "#E0592A", "solid", "x"),
    "gwr_geometric": Look("GWR geometric", "nearest after matching moments", "#C2506B", "dot", "pentagon"),
    "whitening": Look("whitening only", "nearest after whitening both", "#7A6FD0", "dot", "hexagon"),
    "random": Look("random", "drawn anew for each query", "#C94F4F", "dot", "cross"),
}
ABLATIONS = ("mlp_squared", "linear_cross_entropy")  # measured beside the others and not stored for use
LEFT_OUT = 4  # first keys, where sinks are left out
HEAD = ("kmeans", "static_prior", "gwr_linear", "mlp", "oracle")  # of the paper's table 2, with two controls


def share(visited: float, buckets: int) -> str:
    """l of C, and as a share of all buckets."""
    return f"{visited:g} of {buckets:,} buckets ({visited / buckets:.1%})"


def interval(row: dict, key: str, percent: bool = True) -> str:
    """A 95% interval as it stands in a cell; a dash where there is none."""
    low, high = row.get(f"{key}_low"), row.get(f"{key}_high")
    if low is None or high is None:
        return "–"
    return f"{100 * low:.1f} to {100 * high:.1f}" if percent else f"{low:.2f} to {high:.2f}"


def printed(paper: Sequence[dict], column: str) -> list[dict]:
    """The paper's cells for recall, selectivity or gap closure of one router, as shares: `router share value l`.

    Recall at its budget of 32 stands in table 1 with more digits than in figure 2, which adds other budgets.
    """
    by_router = {}
    for row in paper:
        kind = _kind(row)
        if kind == column and row["router"] and isinstance(row["value"], (int, float)):
            value = row["value"] / 100 if row["unit"] == "%" else row["value"]
            by_router.setdefault((row["router"], row["l"]), row | {"value": value})
    return list(by_router.values())


def _kind(row: dict) -> str | None:
    """Which of the three numbers a cell of table 1 or figure 2 is; None for any other."""
    if row["table"] == "table 1":
        return {"Recall@32": "recall", "Selectivity@32": "selectivity", "Gap Closure": "closure"}.get(row["column"])
    if row["table"] == "figure 2" and row["column"] != "Gap Closure":
        return "recall"
    return None


def printed_closure(paper: Sequence[dict]) -> list[dict]:
    """Figure 2b of the paper, GWR linear: `router share value l`."""
    rows = [row for row in paper if row["table"] == "figure 2" and row["column"] == "Gap Closure"]
    return [row | {"router": "gwr_linear", "value": row["value"] / 100} for row in rows]


def head_columns() -> dict[str, tables.Column]:
    """The columns of table 2 and its controls."""
    columns = {"layer": tables.Column("layer", "whole"), "head": tables.Column("head", "whole")}
    columns |= {kind: tables.Column(ROUTERS[kind].title, "share", help=ROUTERS[kind].about) for kind in HEAD}
    return columns | {"gap_closure": tables.Column("gap closure", "share")}
