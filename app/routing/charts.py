"""Figures of bucket routing: recall, selectivity and gap closure against the buckets visited, balance, one query."""

import math
from collections.abc import Sequence

from app.routing.words import ROUTERS
from app.ui.charts import ASIDE, CHANCE, HERE, NAMES, RANDOM, SHARE, bars, error_bars, figure, line, marks, upright

TICKS = (256, 128, 64, 32, 16, 8, 4, 2, 1)
PRINTED = "printed in the paper"


def _axis(buckets: int, paper: Sequence[dict], high: float = 1.0) -> dict:
    """Shares of the buckets on a log scale, from one bucket, or from the paper's smallest share, to `high`."""
    low = min([1 / buckets, *(row["share"] for row in paper)])
    ticks = [n for n in TICKS if 0.99 * low <= 1 / n <= high]
    return {
        "type": "log",
        "tickvals": [1 / n for n in ticks],
        "ticktext": [f"1/{n}" if n > 1 else "all" for n in ticks],
        "range": [math.log10(0.85 * low), math.log10(1.07 * high)],
    }


def budgets(
    lines: dict[str, dict], rows: Sequence[dict], paper: Sequence[dict], measure: str, buckets: int, visited: float
) -> dict:
    """Figure 2a: `measure` (recall or selectivity) of every router against l / C. `lines`: router -> `l` and the
    measure; `rows`: the same at the paper's budgets with intervals; `paper`: what it prints, as hollow marks."""
    data = []
    for kind, look in ROUTERS.items():
        points = [row for row in rows if row["router"] == kind]
        if not points:
            continue
        hover = f"{look.title}<br>%{{customdata:g}} of {buckets:,} buckets<br>{measure} %{{y:.1%}}"
        shared = {"legendgroup": kind, "hover": hover, "colour": look.colour, "dash": look.dash}
        if kind in lines:
            visits = lines[kind]["l"]
            x, look_more = [visit / buckets for visit in visits], {"customdata": visits, "showlegend": False}
            data.append(line(look.title, x, lines[kind][measure], symbol=None, **look_more, **shared))
        x, y, visits = ([row[name] for row in points] for name in ("share", measure, "l"))
        look_more = {"customdata": visits, "error_y": _bounds(points, measure, look.colour)}
        data.append(line(look.title, x, y, symbol=look.symbol, **look_more, **shared))
    return figure(
        data + _paper(paper, measure),
        "share of the buckets visited, l / C",
        measure,
        height=430,
        xaxis=_axis(buckets, paper, 1.0 if lines else 1 / 8),
        yaxis=SHARE,
        shapes=[upright(visited / buckets, HERE, "solid")],
        transition={"duration": 0},
        **ASIDE,
    )


def _bounds(rows: Sequence[dict], key: str, colour: str) -> dict:
    return error_bars(*([row[f"{key}{end}"] for row in rows] for end in ("", "_low", "_high")), colour)


def _paper(rows: Sequence[dict], measure: str) -> list[dict]:
    """Hollow marks in the colours of their routers, one legend entry for all."""
    data = []
    for row in rows:
        look = ROUTERS[row["router"]]
        hover = f"{PRINTED} (Qwen2.5-7B)<br>{look.title}, {row['l']} of 1,024 buckets<br>{measure} %{{y:.1%}}"
        marker = {"symbol": "circle-open", "size": 13, "color": look.colour, "line": {"width": 2}}
        legend = {"legendgroup": PRINTED, "showlegend": not data}
        data.append(marks(PRINTED, [row["share"]], [row["value"]], hover, marker, **legend))
    return data


def closure(rows: Sequence[dict], paper: Sequence[dict], way: str, buckets: int, visited: float, span: tuple) -> dict:
    """Figure 2b: gap closure of every router, averaged one `way`, against l / C; outside of `span` (low, high) it is
    cut off."""
    data = []
    for kind, look in ROUTERS.items():
        points = [row for row in rows if row["router"] == kind and row[way] is not None]
        if kind in ("oracle", "random") or not points:
            continue
        x, y = [row["l"] / buckets for row in points], [row[way] for row in points]
        details = {"customdata": [row["l"] for row in points], "error_y": _bounds(points, way, look.colour)}
        hover = f"{look.title}<br>%{{customdata:g}} of {buckets:,} buckets<br>closes %{{y:.1%}}"
        data.append(line(look.title, x, y, look.colour, look.dash, look.symbol, hover, **details))
    return figure(
        data + _paper(paper, "closes"),
        "share of the buckets visited, l / C",
        "gap closure",
        height=440,
        xaxis=_axis(buckets, paper, 1 / 8),
        yaxis={"tickformat": ".0%", "range": list(span)},
        shapes=[upright(visited / buckets, HERE, "solid")],
        margin={"l": 60, "r": 16, "t": 28, "b": 150},
        transition={"duration": 0},
    )


def balance(layers: Sequence[int], sides: dict[str, Sequence[float]], even: float) -> dict:
    """The largest bucket of each layer, of the keys that calibrated and of those that test, with the even share."""
    data, x = [], [f"{layer}" for layer in layers]
    for (name, values), (colour, shape) in zip(sides.items(), ((RANDOM, "/"), (HERE, "")), strict=False):
        data.append(bars(name, x, values, colour, f"layer %{{x}}<br>{name}: %{{y:.1%}} of the keys", shape))
    data.append(line(f"even buckets (1/C = {even:.1%})", x, [even] * len(x), CHANCE, "dot", None))
    return figure(data, "layer", "share of the keys in the largest bucket", xaxis=NAMES, yaxis=SHARE)


def query(table: dict, visited: float) -> dict:
    """The far attention in each bucket, in the router's order; those visited are full, the missed ones hatched."""
    data, layout = [], {"yaxis": SHARE, "transition": {"duration": 0}}
    hover = "bucket %{customdata[0]}, place %{x}<br>%{y:.1%} of the far attention<br>%{customdata[1]:,} keys"
    for name, colour, shape, inside in (("visited", HERE, "", True), ("not visited", "#C97A14", "/", False)):
        rows = [row for row, rank in enumerate(table["rank"]) if (rank < int(visited)) == inside]
        x, y = [table["rank"][row] + 1 for row in rows], [table["mass"][row] for row in rows]
        bucket_sizes = [[table["bucket"][row], table["keys"][row]] for row in rows]
        data.append(bars(name, x, y, colour, hover, shape, customdata=bucket_sizes))
    return figure(data, "buckets in the router's order, best first", "share of the far attention", **layout)
