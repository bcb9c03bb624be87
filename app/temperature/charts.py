"""Figures of the softmax temperature: sharpness of layers and heads, one query before and after, perplexity."""

from collections.abc import Sequence

from app.selection.sparsify import SHARPNESS
from app.ui import painted
from app.ui.charts import (
    CHANCE,
    GROUPS,
    HERE,
    NAMES,
    RANDOM,
    SHARE,
    bars,
    error_bars,
    figure,
    level,
    line,
    safe,
    style,
    upright,
)
from app.ui.reading import rows_of

DASHES = ("solid", "dash", "dot", "dashdot")
MOST_NAMED = 12  # lines that get a legend entry each


def against(table: dict, over: str, measure: str, chosen: int) -> dict:
    """One line against the temperature for every value of `over` (layer or head) in `table`; `chosen` is thick, dense
    attention marked."""
    title, _, log = SHARPNESS[measure]
    share = measure == "max_prob"
    data, places, number = [], sorted(set(table[over])), "%{y:.1%}" if share else "%{y:,.3g}"
    for place in places:
        columns, (colour, symbol) = rows_of(table, **{over: place}), style(place)
        width, opacity = (4, 1.0) if place == chosen else (1.5, 0.65)
        legend = {"opacity": opacity, "showlegend": len(places) <= MOST_NAMED or place == chosen}
        dash = DASHES[place // len(GROUPS) % len(DASHES)]
        name, hover = f"{over} {place}", f"{over} {place}, t %{{x}}<br>{title}: {number}"
        data.append(line(name, columns["t"], columns[measure], colour, dash, symbol, hover, width, **legend))
    axis = {"type": "log", "tickformat": "~g"} if log else {"rangemode": "tozero"}
    return figure(
        data,
        "softmax temperature",
        title.lower(),
        height=380,
        yaxis=axis | ({"tickformat": ".0%"} if share else {}),
        shapes=[upright(1.0)],
        margin={"l": 60, "r": 16, "t": 28, "b": 110},
        transition={"duration": 0},
    )


def query(table: dict, rows: Sequence[int], t: float) -> dict:
    """The chosen `rows` (keys) of a query's table: weight before, in dense attention, and after."""
    x = [f"{safe(painted.visible(table['piece'][row]))} · {table['position'][row]:,}" for row in rows]
    data = []
    for name, column, colour, shape in (("t = 1 (dense)", "before", RANDOM, "/"), (f"t = {t:g}", "after", HERE, "")):
        hover = f"%{{x}}<br>{name}: %{{y:.2%}} of the attention"
        data.append(bars(name, x, [table[column][row] for row in rows], colour, hover, shape))
    return figure(
        data,
        "key (is attended), with its place in the text",
        "share of the attention",
        height=380,
        xaxis=NAMES,
        yaxis=SHARE,
        margin={"l": 60, "r": 16, "t": 28, "b": 140},
        transition={"duration": 0},
    )


def change(lines: dict[str, dict], x: str, x_label: str) -> dict:
    """Change of perplexity against dense; `lines`: name -> columns with `x`, `difference` and, where known,
    `low high`."""
    data = []
    for series, (name, table) in enumerate(lines.items()):
        (colour, symbol), dash = style(series), DASHES[series % len(DASHES)]
        hover = f"{safe(name)}<br>{x_label} %{{x}}: %{{y:+.2%}}"
        curve = line(safe(name), table[x], table["difference"], colour, dash, symbol, hover)
        if "low" in table:
            curve["error_y"] = error_bars(table["difference"], table["low"], table["high"], colour)
        data.append(curve)
    title, yaxis = "change of perplexity against dense", {"tickformat": "+.1~%"}
    return figure(data, x_label, title, yaxis=yaxis, shapes=[level(0, CHANCE, 1.5)])
