"""Figures of bucket routing: gap closure against the buckets visited, balance, the buckets of one query."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from app.routing.bucket_routers import ORACLES, ROUTERS
from app.ui.charts import CHANCE, HERE, NAMES, RANDOM, SHARE, bars, figure, line, upright
from app.ui.plots import AT_ONCE, columns, curve, interval

TICKS = (256, 128, 64, 32, 16, 8)
VISITED = "share of the buckets visited, l / C"


def closure(rows: Sequence[dict], way: str, buckets: int, visited: float, span: tuple) -> dict:
    """Figure 2b: gap closure of every router, averaged one `way`, against l / C; outside of `span` (low, high) it is
    cut off."""
    data = []
    for kind, router in ROUTERS.items():
        points = [row | {"share": row["l"] / buckets} for row in rows if row["router"] == kind and row[way] is not None]
        if kind in ("random", *ORACLES) or not points:
            continue
        hover = f"{router.title}<br>%{{customdata:g}} of {buckets:,} buckets<br>closes %{{y:.1%}}"
        visits = columns(points, "l")["l"]
        data.append(curve(router.title, points, "share", way, router.look, hover, interval(way), customdata=visits))
    # From one bucket to an eighth of them.
    ticks = [n for n in TICKS if 0.99 / buckets <= 1 / n <= 1 / 8]
    xaxis: dict[str, Any] = {"type": "log", "range": [math.log10(0.85 / buckets), math.log10(1.07 / 8)]}
    xaxis |= {"tickvals": [1 / n for n in ticks], "ticktext": [f"1/{n}" for n in ticks]}
    axes: dict[str, Any] = {"xaxis": xaxis, "yaxis": {"tickformat": ".0%", "range": list(span)}}
    look: dict[str, Any] = {"height": 440, "margin": {"l": 60, "r": 16, "t": 28, "b": 150}} | AT_ONCE
    shapes = [upright(visited / buckets, HERE, "solid")]
    return figure(data, VISITED, "gap closure", shapes=shapes, **axes, **look)


def balance(layers: Sequence[int], sides: Mapping[str, Sequence[float]], even: float) -> dict:
    """The largest bucket of each layer, of the keys that calibrated and of those that test, with the even share."""
    data, x = [], [f"{layer}" for layer in layers]
    for (name, values), (colour, shape) in zip(sides.items(), ((RANDOM, "/"), (HERE, "")), strict=False):
        data.append(bars(name, x, values, colour, f"layer %{{x}}<br>{name}: %{{y:.1%}} of the keys", shape))
    data.append(line(f"even buckets (1/C = {even:.1%})", x, [even] * len(x), CHANCE, "dot", None))
    return figure(data, "layer", "share of the keys in the largest bucket", xaxis=NAMES, yaxis=SHARE)


def query(table: dict, visited: int) -> dict:
    """The far attention in each bucket, in the router's order; those visited are full, the missed ones hatched."""
    data = []
    hover = "bucket %{customdata[0]}, place %{x}<br>%{y:.1%} of the far attention<br>%{customdata[1]:,} keys"
    for name, colour, shape, inside in (("visited", HERE, "", True), ("not visited", "#C97A14", "/", False)):
        rows = [row for row, rank in enumerate(table["rank"]) if (rank < visited) == inside]
        x, y = [table["rank"][row] + 1 for row in rows], [table["mass"][row] for row in rows]
        sizes = [[table["bucket"][row], table["keys"][row]] for row in rows]
        data.append(bars(name, x, y, colour, hover, shape, customdata=sizes))
    x_title = "buckets in the router's order, best first"
    return figure(data, x_title, "share of the far attention", yaxis=SHARE, transition=AT_ONCE["transition"])
