"""One panel of a stored study, as the study itself describes it."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from analysis.runs.stored import Panel, Series
from app.ui.charts import ASIDE, GROUPS, NAMES, RANDOM, SYMBOLS, error_bars, figure, line, safe

MOST_TICKS = 12  # x values that are named one by one
ROOM = 1 / 25  # of the axis, between two names


def panel(about: Panel, names: list[str], large: bool = False) -> dict[str, Any]:
    """The figure of a panel. Values of x that are words, or far apart, stand at equal steps, and marks over words
    alone, which have no order, are not joined; a long curve has no marks. What a paper prints is dashed with open
    marks. `names`: every series of the study, so that one keeps its colour from panel to panel. `large`: by itself,
    with its legend aside."""
    x = about.x_values
    words = any(isinstance(value, str) for value in x)
    curve = not words and len(x) > MOST_TICKS
    axis: dict[str, Any] = dict(NAMES) if words else {}
    if not words and not curve:
        evenly = len({b - a for a, b in pairwise(x)}) == 1
        logarithmic = not evenly and len(x) > 2 and min(x) > 0 and max(x) / min(x) >= 8
        ticks = _apart(x, logarithmic)
        axis = {"type": "log"} if logarithmic else {}
        axis |= {"tickvals": ticks, "ticktext": [f"{t:,}" if isinstance(t, int) else f"{t:g}" for t in ticks]}
    mode = "lines" if curve else "lines+markers"
    if all(isinstance(value, str) for value in x):
        mode = "markers"
    x_values = [str(value) for value in x] if words else x
    data = [_trace(about, series, x_values, names.index(series.name), mode) for series in about.series]
    rising = {"tickformat": ".1~%"} if about.share else {}
    rising |= {"autorange": "reversed"} if about.up == "low" else {}
    shape = {"height": 520, **ASIDE} if large else {"height": 330}
    return figure(data, about.x_label, about.y_label, xaxis=axis, yaxis=rising, **shape)


def _trace(about: Panel, series: Series, x: Sequence, place: int, mode: str) -> dict[str, Any]:
    """One line of the figure; `place` among all series of the study decides how it looks."""
    again = place // len(GROUPS)  # once the colours are used up, another mark and line
    symbol = SYMBOLS[(place + again) % len(SYMBOLS)]
    name, colour, dash = series.name, GROUPS[place % len(GROUPS)], "dot" if again else "solid"
    if series.paper:
        name = name if "paper" in name else f"{name}, paper"
        colour, dash, symbol = RANDOM, "dash", f"{symbol}-open"
    number = "%{y:.2%}" if about.share else "%{y:.4g}"
    hover = f"{safe(name)}<br>{safe(about.x_label)} %{{x}}: {number}"
    trace = line(safe(name), x, series.y, colour, dash, symbol, hover, mode=mode)
    if series.low and series.high:
        trace["error_y"] = error_bars(series.y, series.low, series.high, colour)
    return trace


def _apart(x: Sequence[float], logarithmic: bool) -> list[float]:
    """The values of x, rising, whose names have room beside each other."""
    place = {value: math.log(value) if logarithmic else value for value in sorted(set(x))}
    room = ROOM * (max(place.values()) - min(place.values()))
    named: list[float] = []
    for value in place:
        if not named or place[value] - place[named[-1]] >= room:
            named.append(value)
    return named


def values(about: Panel) -> dict[str, list]:
    """The numbers behind a panel, as they are downloaded."""
    numbers = {about.x_label: about.x_values}
    for series in about.series:
        name = f"{series.name}{' (paper)' if series.paper else ''}"
        numbers[name] = series.y
        numbers |= {f"{name}, low": series.low} if series.low else {}
        numbers |= {f"{name}, high": series.high} if series.high else {}
    return numbers
