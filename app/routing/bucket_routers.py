"""Bucket routers: what each is called and looks like, and what the paper printed of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.ui import head_cards, tables
from app.ui.plots import Look


@dataclass(frozen=True)
class Router:
    """How a router stands on a chart and in a table."""

    title: str
    about: str
    look: Look


ROUTERS = {
    "oracle": Router("oracle", "the best that any choice could do", Look("#7F8A93", "dash", "star")),
    "mlp": Router("Saap-style MLP", "two layers per head, trained", Look("#AA3377", "solid", "diamond")),
    "mlp_squared": Router(
        "Saap-style MLP, squared error", "the same, with the loss of GWR", Look("#C27AAE", "dash", "star-diamond")
    ),
    "linear_cross_entropy": Router(
        "linear, cross-entropy",
        "one matrix per head, with the loss of the MLP",
        Look("#6E88D6", "dashdot", "diamond-open"),
    ),
    "gwr_linear": Router("GWR linear", "mass from the query by least squares", Look("#1483B0", "solid", "circle")),
    "gwr_linear_intercept": Router(
        "GWR linear with intercept", "the same, with a constant", Look("#239ABD", "dashdot", "circle-open")
    ),
    "static_prior": Router("static prior", "the same buckets for every query", Look("#AB880A", "dash", "square")),
    "recency": Router("recency", "the buckets of the newest keys", Look("#5E9A6B", "dash", "triangle-up")),
    "kmeans": Router("symmetric k-means", "the centroids nearest to the query", Look("#E0592A", "solid", "x")),
    "gwr_geometric": Router("GWR geometric", "nearest after matching moments", Look("#C2506B", "dot", "pentagon")),
    "whitening": Router("whitening only", "nearest after whitening both", Look("#7A6FD0", "dot", "hexagon")),
    "random": Router("random", "drawn anew for each query", Look("#C94F4F", "dot", "cross")),
    "dsa": Router("DSA", "an indexer for a layer (DeepSeek-V3.2)", Look("#4477AA", "solid", "circle")),
    "glm": Router("GLM-MoE-DSA", "the same, other pairs rotated", Look("#4477AA", "dash", "circle-open")),
    "qsa": Router("QSA", "an indexer of groups of tokens (Qwen4-Exp)", Look("#E0592A", "solid", "square")),
    "m3": Router("MiniMax-M3", "an indexer for a key-value group, by blocks", Look("#228833", "solid", "diamond")),
    "seer": Router("SeerAttention-R", "a gate for a key-value group, by blocks", Look("#AA3377", "solid", "pentagon")),
    "moba": Router("MoBA", "means of blocks, nothing fitted", Look("#239ABD", "dash", "hexagon")),
    "low_rank": Router("low rank", "a bilinear form in closed form", Look("#AB880A", "dash", "triangle-up")),
    "dsa_shuffled": Router("DSA, shuffled targets", "a null: it learns other documents", Look("#7F8A93", "dot", "x")),
    "recent_keys": Router("newest keys", "as many of the newest far keys", Look("#5E9A6B", "dot", "triangle-down")),
    "oracle_layer": Router(
        "best selection of a layer", "a bound of what shares one", Look("#7F8A93", "dash", "star-open")
    ),
    "oracle_group": Router(
        "best selection of a group", "a bound for a group", Look("#7F8A93", "dashdot", "star-square")
    ),
    "oracle_head": Router("best selection of a head", "a bound of all", Look("#5F6A73", "solid", "star-diamond")),
}
# They look at the answer.
ORACLES = ("oracle", "oracle_layer", "oracle_group", "oracle_head")
# No routers of buckets: indexers, the null of one, and what keys of one's own choice could hold.
INDEXERS = ("dsa", "glm", "qsa", "m3", "seer", "moba", "low_rank", "dsa_shuffled", "recent_keys", *ORACLES[1:])
# Measured beside the others and no stored routers.
ABLATIONS = ("mlp_squared", "linear_cross_entropy", *INDEXERS)
# First keys, where sinks are left out.
LEFT_OUT = 4
# Of the paper's table 2, with two controls.
HEAD = ("kmeans", "static_prior", "gwr_linear", "mlp", "oracle")
HEAD_COLUMNS = {  # of that table
    "name": head_cards.HEAD,
    **{kind: tables.Column(ROUTERS[kind].title, "share", help=ROUTERS[kind].about) for kind in HEAD},
    "gap_closure": tables.Column("gap closure", "share"),
}
# Columns of its table 1.
PRINTED = {"Recall@32": "recall", "Gap Closure": "closure"}


def fraction(cell: dict) -> float:
    """A number of the paper as a share."""
    return cell["value"] / 100 if cell["unit"] == "%" else cell["value"]


def printed(paper: Sequence[dict], measure: str) -> list[dict]:
    """The paper's cells for recall or closure of one router at its budget of 32, table 1, as shares: `router value`."""
    cells = (cell for cell in paper if cell["table"] == "table 1" and PRINTED.get(cell["column"]) == measure)
    numbers = [cell for cell in cells if cell["router"] and isinstance(cell["value"], (int, float))]
    return [cell | {"value": fraction(cell)} for cell in numbers]


def named(heads: Sequence[dict]) -> list[dict]:
    """The rows of heads with their names, layer.head."""
    return [{"name": f"{row['layer']}.{row['head']}"} | row for row in heads]
