"""Plotly figures as plain dictionaries: what is drawn and how it is labelled, nothing computed.

Plain dictionaries keep plotly's Python objects (and pandas) out of the app's memory. Colours are mid tones that hold
3:1 against the light and the dark page; a second channel (pattern, dash, symbol) always says the same.
"""

from collections.abc import Sequence
from html import escape
from typing import Any

HERE, RANDOM, TOKENS, SHUFFLED, CHANCE = "#1483B0", "#7C8796", "#A07CC5", "#C0803A", "#C94F4F"
ARMS = {  # arm -> (colour, bar pattern, line dash, marker)
    "this router": (HERE, "", "solid", "circle"),
    "random centroids": (RANDOM, "/", "dash", "square"),
    "random tokens": (TOKENS, ".", "dashdot", "diamond"),
    "shuffled text": (SHUFFLED, "x", "dot", "x"),
}
GROUPS = ("#4477AA", "#E0592A", "#228833", "#AB880A", "#239ABD", "#AA3377", "#7A6FD0", "#7F8A93", "#C2506B", "#5E9A6B")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "pentagon", "star", "cross", "hexagon", "bowtie")
# Pixels of the letters that the last row of a class reads.
PROJECTED = 17
MOST_POINTS = 20_000  # of a scatter
AXIS = {"zeroline": False, "exponentformat": "none", "separatethousands": True, "automargin": True}  # 10,000, not 10k
MARGIN = {"l": 60, "r": 16, "t": 28, "b": 96}
# For a legend that is too long to stand below: the two go together into `figure`.
ASIDE = {
    "legend": {"orientation": "v", "x": 1.01, "xanchor": "left", "y": 1, "yanchor": "top", "yref": "paper"}
    | {"tracegroupgap": 0},
    "margin": MARGIN | {"b": 56},
}
# An axis of shares, from zero.
SHARE = {"tickformat": ".0%", "rangemode": "tozero"}
LAYERS = {"dtick": 1}  # an axis of layers
# An axis of names, or of numbers that are names.
NAMES = {"type": "category"}
DISTANCE = "tokens back, from"  # the axis of `from_bins`


def safe(text: object) -> str:
    """Text for a hover label: plotly reads a subset of HTML, so what a reader supplied is escaped, breaks shown."""
    return escape(str(text), quote=False).replace("\n", "↵")


def figure(data: list[dict], x: str, y: str, height: int = 340, **layout: object) -> dict:
    """A figure with both axes named and the legend below the plot; a bar of colours tells small shares apart."""
    for trace in data:
        if trace.get("colorbar", {}).get("tickformat") == ".0%":
            trace["colorbar"]["tickformat"] = ".2~%"
    shared: dict[str, Any] = {
        "height": height,
        "margin": MARGIN,
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "yref": "container", "y": 0, "yanchor": "bottom"},
        "xaxis": {"title": {"text": x}, **AXIS},
        "yaxis": {"title": {"text": y}, **AXIS},
        "hoverlabel": {"align": "left"},
        "bargap": 0.25,
    }
    for axis in ("xaxis", "yaxis"):
        shared[axis] |= layout.pop(axis, {})
    return {"data": data, "layout": shared | layout}


def larger(figure: dict) -> dict:
    """The figure with letters for a projector; the axes' titles and ticks follow."""
    letters = {"font": {"size": PROJECTED}}
    axes = {
        name: axis | {"tickfont": {"size": PROJECTED}, "title": axis.get("title", {}) | letters}
        for name, axis in figure["layout"].items()
        if name.startswith(("xaxis", "yaxis"))
    }
    legend = figure["layout"].get("legend", {}) | letters
    return {"data": figure["data"], "layout": figure["layout"] | letters | axes | {"legend": legend}}


def bins(low: Sequence[int], high: Sequence[int]) -> list[str]:
    """Labels of distance bins; `high` is exclusive."""
    return [f"{a:,}" if b == a + 1 else f"{a:,}–{b - 1:,}" for a, b in zip(low, high, strict=True)]


def from_bins(low: Sequence[int], high: Sequence[int]) -> dict:
    """The axis of distance bins: each is named by where it begins, because both ends have no room side by side."""
    return NAMES | {"tickvals": bins(low, high), "ticktext": [f"{a:,}" for a in low]}


def distance(table: dict) -> dict:
    """Share of the attention by distance, with the line of uniform reading (chance)."""
    labels = bins(table["low"], table["high"])
    chance = "%{x} tokens back<br>uniform reading: %{y:.1%}"
    data = [
        bars("this text", labels, table["mass"], HERE, "%{x} tokens back<br>%{y:.1%} of the attention"),
        line("uniform reading (chance)", labels, table["uniform"], CHANCE, "dot", "circle-open", chance),
    ]
    axis = from_bins(table["low"], table["high"])
    return figure(data, DISTANCE, "share of the attention", xaxis=axis, yaxis=SHARE)


def shares(table: dict, groups: int, chosen: int | None) -> dict:
    """Share of the tokens in each group of one layer, beside the two controls and the line 1/K."""
    x, data = [f"{g}" for g in table["group"]], []
    faded = {"opacity": [1.0 if chosen in (None, g) else 0.35 for g in table["group"]]}
    for arm, column in _beside("share").items():
        hover = f"group %{{x}}<br>{arm}: %{{y:.1%}} of the tokens"
        data.append(bars(arm, x, table[column], ARMS[arm][0], hover, ARMS[arm][1], marker=faded))
    data.append(even(x, 1 / groups))
    return figure(data, "group", "share of the tokens", xaxis=NAMES, yaxis={"tickformat": ".0%"})


def _beside(column: str) -> dict[str, str]:
    return {"this router": column, "random centroids": f"{column}_random", "shuffled text": f"{column}_shuffled"}


def even(x: Sequence, level: float) -> dict:
    """The dotted line of even groups, 1/K."""
    return line(f"even groups (1/K = {level:.1%})", x, [level] * len(x), CHANCE, "dot", None)


def levels(ends: Sequence, even_share: float, chance: float) -> list[dict]:
    """The lines of even groups and of what balanced groups reach by chance, from end to end."""
    name = f"balanced chance ({chance:.1%})"
    return [even(ends, even_share), line(name, ends, [chance] * len(ends), RANDOM, "dashdot", None)]


def upright(x: float, colour: str = RANDOM, dash: str = "dot", width: float = 1.5) -> dict:
    """A shape: a line across the plot at `x`."""
    place = {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "layer": "below"}
    return place | {"line": {"color": colour, "width": width, "dash": dash}}


def level(y: float, colour: str = RANDOM, width: float = 1.2, xref: str = "paper") -> dict:
    """A shape: a dotted line along the plot at `y`."""
    place = {"type": "line", "x0": 0, "x1": 1, "xref": xref, "y0": y, "y1": y, "layer": "below"}
    return place | {"line": {"color": colour, "width": width, "dash": "dot"}}


def _trace(kind: str, name: str, x: Sequence, y: Sequence, hover: str | None, details: dict) -> dict:
    hover_look = {"hovertemplate": f"{hover}<extra></extra>"} if hover else {"hoverinfo": "skip"}
    return {"type": kind, "name": name, "x": list(x), "y": list(y), **hover_look, **details}


def line(
    name: str,
    x: Sequence,
    y: Sequence,
    colour: str,
    dash: str,
    symbol: str | None,
    hover: str | None = None,
    width: float = 2,
    **details: object,
) -> dict:
    """A line, with markers unless `symbol` is None; `hover` is plotly's template, and without one nothing is said."""
    look = {"mode": "lines+markers" if symbol else "lines", "line": {"color": colour, "dash": dash, "width": width}}
    if symbol:
        look["marker"] = {"color": colour, "symbol": symbol, "size": 7}
    return _trace("scatter", name, x, y, hover, look | details)


def marks(name: str, x: Sequence, y: Sequence, hover: str | None, marker: dict, **details: object) -> dict:
    """Marks that no line joins."""
    return _trace("scatter", name, x, y, hover, {"mode": "markers", "marker": marker, **details})


def bars(
    name: str,
    x: Sequence,
    y: Sequence,
    colour: Any,
    hover: str | None,
    pattern: str | None = "",
    marker: dict | None = None,
    **details: object,
) -> dict:
    """Bars; the `pattern` says the same as the colour, and `marker` adds to both."""
    look = {"color": colour, "pattern": {"shape": pattern, "size": 6, "solidity": 0.35}} | (marker or {})
    return _trace("bar", name, x, y, hover, {"marker": look, **details})


def style(place: int) -> tuple[str, str]:
    """Colour and symbol of the series at this place."""
    return GROUPS[place % len(GROUPS)], SYMBOLS[place % len(SYMBOLS)]


def sampled(count: int) -> Sequence[int]:
    """The rows of a scatter that are drawn: all, or MOST_POINTS of them, evenly spaced. Marks are SVG, because the
    app's security policy forbids the code that WebGL charts make in the browser."""
    return range(count) if count <= MOST_POINTS else [place * count // MOST_POINTS for place in range(MOST_POINTS)]


def error_bars(middle: Sequence, low: Sequence, high: Sequence, colour: str) -> dict:
    """plotly's `error_x` or `error_y` from `low` to `high` around `middle`; no bar where one of them is None."""
    complete = [None not in bar for bar in zip(middle, low, high, strict=True)]
    ends = {
        "array": [max(b - a, 0) if sure else 0 for a, b, sure in zip(middle, high, complete, strict=True)],
        "arrayminus": [max(a - b, 0) if sure else 0 for a, b, sure in zip(middle, low, complete, strict=True)],
    }
    look = {"color": colour, "thickness": 1.2, "width": 4, "visible": any(complete)}
    return {"type": "data", "symmetric": False, **ends, **look}


def by_layer(table: dict, measure: str, groups: int, layer: int) -> dict:
    """The largest group's share, or the confidence, of every layer, beside its controls."""
    sure = measure == "confidence"
    data = [
        line(arm, table["layer"], table[column], *line_style(arm), f"layer %{{x}}<br>{arm}: %{{y:.1%}}")
        for arm, column in _beside("confidence" if sure else "dominance").items()
        if column in table
    ]
    data.append(even(table["layer"], 1 / groups))
    title = "confidence (largest assignment, mean)" if sure else "largest group's share of the tokens"
    return figure(data, "layer", title, xaxis=LAYERS, yaxis=SHARE, shapes=[band(layer)])


def line_style(arm: str) -> tuple[str, str, str]:
    """Colour, dash and symbol of an arm's line."""
    colour, _, dash, symbol = ARMS[arm]
    return colour, dash, symbol


def band(layer: int) -> dict:
    """A band behind the chosen layer."""
    place = {"type": "rect", "x0": layer - 0.3, "x1": layer + 0.3, "y0": 0, "y1": 1, "yref": "paper"}
    return place | {"fillcolor": HERE, "opacity": 0.12, "line": {"width": 0}, "layer": "below"}


def vectors(
    xy: Any,
    positions: Sequence[int],
    group: Sequence[int],
    words: Sequence[str],
    labels: Sequence[str],
    names: tuple[str, str],
    chosen: int | None,
) -> dict:
    """Routing vectors of one layer, one trace per group; `xy` [n, 2], `group` int [n]; made for a lasso."""
    data = []
    for g, label in enumerate(labels):
        members = [i for i in range(len(positions)) if group[i] == g]
        if not members:
            continue
        colour, symbol = style(g)
        trace = marks(
            f"{g} {safe(label)}",
            [float(xy[i][0]) for i in members],
            [float(xy[i][1]) for i in members],
            f"%{{text}}<br>token %{{customdata:,}}, group {g}",
            {"color": colour, "symbol": symbol, "size": 6},
            text=[safe(words[i]) for i in members],
            customdata=[int(positions[i]) for i in members],
            opacity=0.85 if chosen in (None, g) else 0.12,
        )
        data.append(trace)
    return figure(data, *names, height=460, dragmode="lasso", xaxis={"showgrid": False}, yaxis={"showgrid": False})
