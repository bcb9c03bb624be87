"""Figures of the heads: a map of all of them, the pattern of one, and its distances."""

import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from app.heads.words import STATISTICS, Statistic, letters
from app.ui import charts
from app.ui.charts import HERE, figure
from app.ui.head_map import BOTH_WAYS, CHOSEN, SCALE, head_map

DECADE = 10.0  # a statistic whose values are this many times apart gets a log colour
FLOOR = 1e-4  # attention below is drawn like this
WEIGHTS = {0.0001: "0.01% or less", 0.001: "0.1%", 0.01: "1%", 0.1: "10%", 1.0: "100%"}


def is_log(values: Sequence[float | None]) -> bool:
    """Whether a colour scale of these values is logarithmic: all are positive and they span a decade."""
    numbers = [value for value in values if value is not None]
    return bool(numbers) and min(numbers) > 0 and max(numbers) / min(numbers) >= DECADE


def heads(
    table: dict,
    values: Sequence[float | None],
    about: Statistic,
    layer: int,
    head: int,
    names: Mapping[tuple[int, int], Sequence[str]] = MappingProxyType({}),
) -> dict:
    """Layer x head map of one statistic, the chosen head framed; a label of each head in `table`, if there, and its
    `names` stand in the tip, the names as letters in the cell too. A click on a cell selects the point on it, whose
    customdata is [layer, head]."""
    cells_of = list(zip(table["layer"], table["head"], strict=True))
    log = is_log(values)
    by_cell = {
        key: None if value is None else math.log10(value) if log else value
        for key, value in zip(cells_of, values, strict=True)
    }
    bar = {"thickness": 12, "title": {"text": f"{about.title}{', log' if log else ''}", "side": "right"}}
    if log:
        bar |= _ticks([value for value in values if value is not None], about)
    elif about.kind == "share":
        bar |= {"tickformat": ".0%"}
    labels = table.get("label") or [""] * len(values)
    labelled = zip(cells_of, values, labels, strict=True)
    points = {
        "text": [
            "<br>".join(filter(None, [about.show(v), label, *names.get(cell, ())])) for cell, v, label in labelled
        ],
        "hovertemplate": f"layer %{{y}}, head %{{x}}<br>{about.title}: %{{text}}<extra></extra>",
    }
    cells: dict = {"colorbar": bar}
    if names:
        layers, places = sorted(set(table["layer"])), sorted(set(table["head"]))
        cells["text"] = [[letters(names.get((row, place), ())) for place in places] for row in layers]
        cells["texttemplate"] = "%{text}"
    return head_map(table, by_cell, cells, points, [(layer, head)], height=26)


def scatter(
    table: dict,
    across: str,
    up: str,
    colour: str,
    now: tuple[int, int],
    names: Mapping[tuple[int, int], Sequence[str]] = MappingProxyType({}),
) -> dict:
    """Every head by the columns `across` and `up` of `table`, `colour` (a statistic, or the layer) in colour, the head
    in use ringed; heads without one of the numbers are left out. A point's customdata is [layer, head]."""
    about = STATISTICS.get(colour)
    cells = list(zip(table["layer"], table["head"], strict=True))
    drawn = [row for row in range(len(cells)) if None not in (table[across][row], table[up][row], table[colour][row])]
    axes = [STATISTICS[name] for name in (across, up)]
    labels = []
    for row in drawn:
        lines = [f"{axis.title}: {axis.show(table[name][row])}" for axis, name in zip(axes, (across, up), strict=True)]
        lines += [f"{about.title}: {about.show(table[colour][row])}"] if about else []
        labels.append("<br>".join([*lines, *names.get(cells[row], ())]))
    bar = {"thickness": 12, "title": {"text": about.title if about else "layer", "side": "right"}}
    bar |= {"tickformat": ".0%"} if about and about.kind == "share" else {}
    points = {
        "type": "scatter",
        "mode": "markers",
        "x": [table[across][row] for row in drawn],
        "y": [table[up][row] for row in drawn],
        "customdata": [list(cells[row]) for row in drawn],
        "text": labels,
        "hovertemplate": "layer %{customdata[0]}, head %{customdata[1]}<br>%{text}<extra></extra>",
        "marker": {
            "size": 11,
            "color": [table[colour][row] for row in drawn],
            "colorscale": SCALE,
            "colorbar": bar,
            "line": {
                "width": [3 if cells[row] == now else 0.5 for row in drawn],
                "color": [CHOSEN if cells[row] == now else HERE for row in drawn],
            },
        },
        "unselected": {"marker": {"opacity": 1}},
        "showlegend": False,
    }
    shares = [{"tickformat": ".0%"} if axis.kind == "share" else {} for axis in axes]
    margin = {"l": 60, "r": 12, "t": 30, "b": 54}
    look = {"xaxis": shares[0], "yaxis": shares[1], "margin": margin, "dragmode": False, "clickmode": "event+select"}
    return figure([points], *(axis.title for axis in axes), height=400, **look)


def losses(table: dict, layer: int, head: int) -> dict:
    """Layer x head map of the estimated rise of the loss, red above 0 and blue below, the chosen head framed."""
    cells = zip(table["layer"], table["head"], strict=True)
    about = {"colorscale": BOTH_WAYS, "reversescale": True, "zmid": 0}
    about |= {"colorbar": {"thickness": 12, "title": {"text": "nats per token", "side": "right"}}}
    points = {
        "text": [
            f"estimate {value:+.4f}" + ("" if exact is None else f"<br>measured {exact:+.4f}")
            for value, exact in zip(table["estimate"], table["loss_change"], strict=True)
        ],
        "hovertemplate": "layer %{y}, head %{x}<br>%{text} nats per token<extra></extra>",
    }
    return head_map(table, dict(zip(cells, table["estimate"], strict=True)), about, points, [(layer, head)], height=26)


def _ticks(values: list[float], about: Statistic) -> dict:
    low, high = min(values), max(values)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1,) if high / low > 1000 else (1, 2, 5)
    marks = [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]
    named = [f"{100 * value:g}%" if about.kind == "share" else f"{value:,g}" for value in marks]
    return {"tickvals": [math.log10(value) for value in marks], "ticktext": named}


def pattern(rows, first_query: int, first_key: int, cell: int, query: int | None, box: bool = False) -> dict:
    """A head's pattern `rows` [queries, keys], log colour on one fixed scale; a cell is `cell` tokens wide and high.
    What no query of a cell can see is blank; `query` is marked by a line. `box`: dragging selects a rectangle."""
    width = rows.shape[1]
    masses = np.where(_visible(rows, first_query, first_key, cell), rows, np.nan).astype(np.float32)
    middle = (cell - 1) / 2
    label = "token %{y} reads token %{x}"
    if cell > 1:
        label = f"{cell} tokens around %{{y:.0f}} read {cell} around %{{x:.0f}}"
    trace = {
        "type": "heatmap",
        **{"x0": first_key + middle, "dx": cell, "y0": first_query + middle, "dy": cell},
        **{"zmin": math.log10(FLOOR), "zmax": 0, "colorscale": SCALE, "hoverongaps": False},
        "z": packed(np.log10(np.maximum(masses, FLOOR))),
        "customdata": packed(masses),
        "colorbar": {
            "thickness": 12,
            "title": {"text": "attention, log", "side": "right"},
            "tickvals": [math.log10(value) for value in WEIGHTS],
            "ticktext": list(WEIGHTS.values()),
        },
        "hovertemplate": f"{label}<br>%{{customdata:.2%}} of the attention<extra></extra>",
    }
    ends = {"x0": first_key - 0.5, "x1": first_key + width * cell - 0.5}
    line = {"type": "line", **ends, "y0": query, "y1": query, "line": {"color": CHOSEN, "width": 1.5, "dash": "dot"}}
    axis = {"showgrid": False, "tickformat": ",d"}
    return figure(
        [trace],
        "key (is attended), token",
        "query (attends), token",
        height=470,
        margin={"l": 70, "r": 16, "t": 28, "b": 56},
        xaxis=axis,
        yaxis=axis | {"autorange": "reversed"},
        shapes=[] if query is None else [line],
        dragmode="select" if box else False,
    )


def cells(rows, first_query: int, first_key: int, cell: int) -> dict:
    """The numbers of a pattern as columns: first token of the queries and keys of each visible cell, and its share."""
    i, j = np.nonzero(_visible(rows, first_query, first_key, cell))
    return {
        "query from": (first_query + i * cell).tolist(),
        "key from": (first_key + j * cell).tolist(),
        "attention": rows[i, j].round(6).tolist(),
    }


def _visible(rows, first_query: int, first_key: int, cell: int):
    """Which cells [queries, keys] hold a key that a query of theirs can see."""
    height, width = rows.shape
    last = first_query + (np.arange(height) + 1) * cell - 1
    return first_key + np.arange(width) * cell <= last[:, None]


def packed(values) -> dict:
    """An array as plotly reads it without a Python object for each number: base64 of float32."""
    array = np.ascontiguousarray(values, np.float32)
    return {"dtype": "f4", "bdata": b64encode(array.tobytes()).decode(), "shape": ", ".join(map(str, array.shape))}


def spread(values: dict, about: Statistic) -> dict:
    """A statistic from its lowest to its highest query, of a corpus and of one text: `share` of the queries in per
    cent, `corpus` and `here`."""
    share = about.kind == "share"
    axis = {"tickformat": ".0%"} if share else {}
    hover = f"%{{x}}% of the queries: {about.title} of %{{y:{'.1%' if share else ',.2f'}}} or less"
    data = [
        charts.line(
            "these texts", values["share"], values["corpus"], HERE, "solid", "circle", f"these texts<br>{hover}"
        ),
        charts.line("this text", values["share"], values["here"], CHOSEN, "dash", "square", f"this text<br>{hover}"),
    ]
    return figure(data, "queries, lowest first", about.title, xaxis={"ticksuffix": "%"}, yaxis=axis)


def distances(table: dict, name: str, top: float) -> dict:
    """Attention by distance of one head beside reading all alike; `top`: the largest share of any panel beside it."""
    figure = charts.distance(table)
    figure["data"][0]["name"] = name
    figure["layout"]["yaxis"] |= {"range": [0, 1.08 * top]}
    figure["layout"]["height"] = 330
    return figure
