"""Figures of the heads: a map of all of them, the pattern of one, and its distances."""

import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from app.heads.head_statistics import ALL, Statistic, cells_of
from app.ui.charts import HERE, distance, figure, safe
from app.ui.head_map import CHOSEN, SCALE, head_map
from app.ui.plots import Look, curve

# A statistic whose values are this many times apart gets a log colour.
DECADE = 10.0
# Attention below is drawn like this.
FLOOR = 1e-4
WEIGHTS = {0.0001: "0.01% or less", 0.001: "0.1%", 0.01: "1%", 0.1: "10%", 1.0: "100%"}


def is_log(values: Sequence[float | None]) -> bool:
    """Whether a colour scale of these values is logarithmic: all are positive and they span a decade."""
    numbers = [value for value in values if value is not None]
    return bool(numbers) and min(numbers) > 0 and max(numbers) / min(numbers) >= DECADE


def statistic_map(
    table: dict, values: Sequence[float | None], about: Statistic, chosen: tuple[int, int], cards: Mapping[str, str]
) -> dict:
    """Layer x head map of one statistic, the chosen head framed; `cards` of `head_cards` stand in the tip. A click on a
    cell selects the point on it, whose customdata is [layer, head]."""
    cells, log = cells_of(table), is_log(values)
    drawn = [None if value is None else math.log10(value) if log else value for value in values]
    lines = [(about.show(value), _card(cards, cell)) for cell, value in zip(cells, values, strict=True)]
    tips = ["<br>".join(filter(None, line)) for line in lines]
    bar = _bar(f"{about.title}{', log' if log else ''}")
    if not log:
        bar |= about.axis
    else:
        known = [value for value in values if value is not None]
        low, high = min(known), max(known)
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        steps = (1,) if high / low > 1000 else (1, 2, 5)
        marks = [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]
        named = [f"{100 * value:g}%" if about.kind == "share" else f"{value:,g}" for value in marks]
        bar |= {"tickvals": [math.log10(value) for value in marks], "ticktext": named}
    look: dict = {"colorbar": bar}
    hover = f"layer %{{y}}, head %{{x}}<br>{about.title}: %{{text}}<extra></extra>"
    points = {"text": tips, "hovertemplate": hover}
    return head_map(table, dict(zip(cells, drawn, strict=True)), look, points, [chosen], height=26)


def _card(cards: Mapping[str, str], cell: tuple[int, int]) -> str:
    return safe(cards.get("{}.{}".format(*cell), ""))


def scatter(table: dict, across: str, up: str, colour: str, chosen: tuple[int, int], cards: Mapping[str, str]) -> dict:
    """Every head by the columns `across` and `up` of `table`, `colour` (a statistic, or the layer) in colour, the head
    in use ringed; heads without one of the numbers are left out. A point's customdata is [layer, head], and `cards` of
    `head_cards` stand on hover."""
    rows = zip(cells_of(table), table[across], table[up], table[colour], strict=True)
    drawn = [row for row in rows if None not in row]
    axes, about = [ALL[name] for name in (across, up)], ALL.get(colour)
    labels = []
    for cell, x, y, shade in drawn:
        lines = [f"{axis.title}: {axis.show(value)}" for axis, value in zip(axes, (x, y), strict=True)]
        lines += [f"{about.title}: {about.show(shade)}"] if about else []
        labels.append("<br>".join(filter(None, [*lines, _card(cards, cell)])))
    ringed = [cell == chosen for cell, *_ in drawn]
    ring = {"width": [3 if on else 0.5 for on in ringed], "color": [CHOSEN if on else HERE for on in ringed]}
    bar = _bar(about.title if about else "layer") | (about.axis if about else {})
    shades = {"color": [shade for *_, shade in drawn], "colorscale": SCALE, "colorbar": bar}
    points = {
        "type": "scatter",
        "mode": "markers",
        "x": [x for _, x, _, _ in drawn],
        "y": [y for _, _, y, _ in drawn],
        "customdata": [list(cell) for cell, *_ in drawn],
        "text": labels,
        "hovertemplate": "layer %{customdata[0]}, head %{customdata[1]}<br>%{text}<extra></extra>",
        "marker": {"size": 11, "line": ring} | shades,
        "unselected": {"marker": {"opacity": 1}},
        "showlegend": False,
    }
    look: dict[str, Any] = {
        "margin": {"l": 60, "r": 12, "t": 30, "b": 54},
        "dragmode": False,
        "clickmode": "event+select",
    }
    across_title, up_title = (axis.title for axis in axes)
    return figure([points], across_title, up_title, height=400, xaxis=axes[0].axis, yaxis=axes[1].axis, **look)


def _bar(title: str) -> dict:
    return {"thickness": 12, "title": {"text": title, "side": "right"}}


def pattern(
    masses: np.ndarray, first_query: int, first_key: int, cell: int, query: int | None, box: bool = False
) -> dict:
    """A head's pattern `masses` [queries, keys], log colour on one fixed scale; a cell is `cell` tokens wide and high.
    What no query of a cell can see is blank; `query` is marked by a line. `box`: dragging selects a rectangle."""
    visible = np.where(_visible(masses, first_query, first_key, cell), masses, np.nan).astype(np.float32)
    middle = (cell - 1) / 2
    label = "token %{y} reads token %{x}"
    if cell > 1:
        label = f"{cell} tokens around %{{y:.0f}} read {cell} around %{{x:.0f}}"
    ticks = {"tickvals": [math.log10(value) for value in WEIGHTS], "ticktext": list(WEIGHTS.values())}
    trace = {
        "type": "heatmap",
        **{"x0": first_key + middle, "dx": cell, "y0": first_query + middle, "dy": cell},
        **{"zmin": math.log10(FLOOR), "zmax": 0, "colorscale": SCALE, "hoverongaps": False},
        "z": packed(np.log10(np.maximum(visible, FLOOR))),
        "customdata": packed(visible),
        "colorbar": _bar("attention, log") | ticks,
        "hovertemplate": f"{label}<br>%{{customdata:.2%}} of the attention<extra></extra>",
    }
    ends = {"x0": first_key - 0.5, "x1": first_key + masses.shape[1] * cell - 0.5}
    marked = {"type": "line", **ends, "y0": query, "y1": query, "line": {"color": CHOSEN, "width": 1.5, "dash": "dot"}}
    axis = {"showgrid": False, "tickformat": ",d"}
    look: dict[str, Any] = {"shapes": [] if query is None else [marked], "dragmode": "select" if box else False}
    look |= {"height": 470, "margin": {"l": 70, "r": 16, "t": 28, "b": 56}}
    look |= {"xaxis": axis, "yaxis": axis | {"autorange": "reversed"}}
    return figure([trace], "key (is attended), token", "query (attends), token", **look)


def pattern_numbers(masses: np.ndarray, first_query: int, first_key: int, cell: int) -> dict:
    """The numbers of a pattern as columns: first token of the queries and keys of each visible cell, and its share."""
    queries, keys = np.nonzero(_visible(masses, first_query, first_key, cell))
    return {
        "query from": (first_query + queries * cell).tolist(),
        "key from": (first_key + keys * cell).tolist(),
        "attention": masses[queries, keys].round(6).tolist(),
    }


def _visible(masses: np.ndarray, first_query: int, first_key: int, cell: int) -> np.ndarray:
    """Which cells [queries, keys] hold a key that a query of theirs can see."""
    height, width = masses.shape
    last = first_query + (np.arange(height) + 1) * cell - 1
    return first_key + np.arange(width) * cell <= last[:, None]


def packed(values: np.ndarray) -> dict:
    """An array as plotly reads it without a Python object for each number: base64 of float32."""
    array = np.ascontiguousarray(values, np.float32)
    return {"dtype": "f4", "bdata": b64encode(array.tobytes()).decode(), "shape": ", ".join(map(str, array.shape))}


def spread(values: dict, about: Statistic) -> dict:
    """A statistic from its lowest to its highest query, of a corpus and of one text: `share` of the queries in per
    cent, `corpus` and `here`."""
    number = "%{y:.1%}" if about.kind == "share" else "%{y:,.2f}"
    looks = {"corpus": ("these texts", Look()), "here": ("this text", Look(CHOSEN, "dash", "square"))}
    data = [
        curve(name, values, "share", column, look, f"{name}<br>%{{x}}% of the queries: {number} or less")
        for column, (name, look) in looks.items()
    ]
    return figure(data, "queries, lowest first", about.title, xaxis={"ticksuffix": "%"}, yaxis=about.axis)


def preference(table: dict, name: str) -> dict:
    """The logit of a head's mean query on its mean key by distance."""
    look = "%{x:,} tokens back: %{y:.2f}<extra></extra>"
    # a logarithm has no place for the token itself
    shown = {"logit": table["logit"], "back": [distance + 1 for distance in table["distance"]]}
    return figure(
        [curve(name, shown, "back", "logit", hover=look)],
        "tokens back, the token itself is 1",
        "logit",
        height=240,
        xaxis={"type": "log"},
        showlegend=False,
    )


def distances(table: dict, name: str) -> dict:
    """Attention by distance of one head beside reading all alike."""
    drawn = distance(table)
    drawn["data"][0]["name"] = name
    drawn["layout"]["height"] = 260
    return drawn
