"""One panel of a stored study, as the study itself describes it."""

import math
from collections.abc import Sequence
from itertools import pairwise

from app.ui.charts import ASIDE, GROUPS, NAMES, RANDOM, SYMBOLS, error_bars, figure, line, safe

MOST_TICKS = 12  # x values that are named one by one
ROOM = 1 / 25  # of the axis, between two names


def panel(about: dict, names: list[str], large: bool = False) -> dict:
    """The figure of a panel: `x_values`, and `series` with `name y low high paper`; what is printed in a paper is
    dashed with open marks. Values of x that are words, or far apart, stand at equal steps, and marks over words alone,
    which have no order, are not joined; a long curve has no marks. With `up` "low" low values are drawn high. `names`:
    every series of the study, so that one keeps its colour from panel to panel. `large`: by itself, with its legend
    aside."""
    x = about["x_values"]
    words = any(isinstance(value, str) for value in x)
    curve = not words and len(x) > MOST_TICKS
    even = not words and len({b - a for a, b in pairwise(x)}) == 1
    wide = not words and not curve and not even and len(x) > 2 and min(x) > 0 and max(x) / min(x) >= 8
    mode = "markers" if all(isinstance(value, str) for value in x) else "lines" if curve else "lines+markers"
    shown = [str(value) for value in x] if words else x
    data = []
    for one in about["series"]:
        place = names.index(one["name"])
        again = place // len(GROUPS)  # once the colours are used up, another mark and line
        colour = RANDOM if one["paper"] else GROUPS[place % len(GROUPS)]
        symbol = SYMBOLS[(place + again) % len(SYMBOLS)]
        name = f"{one['name']}, paper" if one["paper"] and "paper" not in one["name"] else one["name"]
        number = "%{y:.2%}" if about.get("share") else "%{y:.4g}"
        hover = f"{safe(name)}<br>{safe(about['x_label'])} %{{x}}: {number}"
        dash, mark = ("dash", f"{symbol}-open") if one["paper"] else ("dot" if again else "solid", symbol)
        made = line(safe(name), shown, one["y"], colour, dash, mark, hover, mode=mode)
        if one.get("low") and one.get("high"):
            made["error_y"] = error_bars(one["y"], one["low"], one["high"], colour)
        data.append(made)
    axis = NAMES if words else {"type": "log"} if wide else {}
    if not words and not curve:
        named = _apart(x, wide)
        said = [f"{value:,}" if isinstance(value, int) else f"{value:g}" for value in named]
        axis |= {"tickvals": named, "ticktext": said}
    rising = {"tickformat": ".1~%"} if about.get("share") else {}
    rising |= {"autorange": "reversed"} if about.get("up") == "low" else {}
    shape = {"height": 520, **ASIDE} if large else {"height": 330}
    return figure(data, about["x_label"], about["y_label"], xaxis=axis, yaxis=rising, **shape)


def _apart(x: Sequence[float], wide: bool) -> list[float]:
    """The values of x, rising, whose names have room beside each other; `wide`: on a logarithmic axis."""
    place = {value: math.log(value) if wide else value for value in sorted(set(x))}
    room = ROOM * (max(place.values()) - min(place.values()))
    found = []
    for value in place:
        if not found or place[value] - place[found[-1]] >= room:
            found.append(value)
    return found


def values(about: dict) -> dict:
    """The numbers behind a panel, as they are downloaded."""
    found = {about["x_label"]: about["x_values"]}
    for one in about["series"]:
        name = f"{one['name']}{' (paper)' if one['paper'] else ''}"
        found[name] = one["y"]
        for end in ("low", "high"):
            if one.get(end):
                found[f"{name}, {end}"] = one[end]
    return found
