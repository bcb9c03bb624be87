"""Figures of the softmax temperature: sharpness of layers and heads, one query before and after, perplexity."""

from collections.abc import Sequence
from typing import Any

from app.selection.sparsify import SHARPNESS
from app.ui import painted
from app.ui.charts import CHANCE, GROUPS, HERE, NAMES, RANDOM, SHARE, bars, figure, level, safe, style, upright
from app.ui.plots import AT_ONCE, CHANGE, DASHES, Look, curve
from app.ui.reading import rows_of

# Lines that get a legend entry each.
MOST_NAMED = 12


def sharpness(table: dict, over: str, measure: str, chosen: int) -> dict:
    """One line against the temperature for every value of `over` (layer or head) in `table`; `chosen` is thick, dense
    attention marked."""
    title, _, log = SHARPNESS[measure]
    share = measure == "max_prob"
    data, places, number = [], sorted(set(table[over])), "%{y:.1%}" if share else "%{y:,.3g}"
    for place in places:
        colour, symbol = style(place)
        look = Look(colour, DASHES[place // len(GROUPS) % len(DASHES)], symbol)
        width, opacity = (4, 1.0) if place == chosen else (1.5, 0.65)
        named = len(places) <= MOST_NAMED or place == chosen
        details: dict[str, Any] = {"width": width, "opacity": opacity, "showlegend": named}
        name, hover = f"{over} {place}", f"{over} {place}, t %{{x}}<br>{title}: {number}"
        data.append(curve(name, rows_of(table, **{over: place}), "t", measure, look, hover, **details))
    axis = {"type": "log", "tickformat": "~g"} if log else {"rangemode": "tozero"}
    axis |= {"tickformat": ".0%"} if share else {}
    layout: dict[str, Any] = {"height": 380, "margin": {"l": 60, "r": 16, "t": 28, "b": 110}, "shapes": [upright(1.0)]}
    return figure(data, "softmax temperature", title.lower(), yaxis=axis, **layout | AT_ONCE)


def query(table: dict, rows: Sequence[int], t: float) -> dict:
    """The chosen `rows` (keys) of a query's table: weight before, in dense attention, and after."""
    x = [f"{safe(painted.visible(table['piece'][row]))} · {table['position'][row]:,}" for row in rows]
    data = []
    for name, column, colour, shape in (("t = 1 (dense)", "before", RANDOM, "/"), (f"t = {t:g}", "after", HERE, "")):
        hover = f"%{{x}}<br>{name}: %{{y:.2%}} of the attention"
        data.append(bars(name, x, [table[column][row] for row in rows], colour, hover, shape))
    look: dict[str, Any] = {
        "height": 380,
        "margin": {"l": 60, "r": 16, "t": 28, "b": 140},
        "xaxis": NAMES,
        "yaxis": SHARE,
    }
    return figure(data, "key (is attended), with its place in the text", "share of the attention", **look | AT_ONCE)


def change(lines: dict[str, dict], x: str, x_label: str) -> dict:
    """Change of perplexity against dense; `lines`: name -> columns with `x`, `difference` and, where known,
    `low high`."""
    data = []
    for place, (name, table) in enumerate(lines.items()):
        colour, symbol = style(place)
        look, ends = Look(colour, DASHES[place % len(DASHES)], symbol), ("low", "high") if "low" in table else None
        hover = f"{safe(name)}<br>{x_label} %{{x}}: %{{y:+.2%}}"
        data.append(curve(safe(name), table, x, "difference", look, hover, ends))
    shapes = [level(0, CHANCE, 1.5)]
    return figure(data, x_label, "change of perplexity against dense", yaxis=CHANGE, shapes=shapes)
