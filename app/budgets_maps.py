"""Maps of keys: a number for every head, on one log colour, what was chosen and what was set by hand marked."""

import math
from collections.abc import Sequence

from app.charts import HERE, figure

SCALE, CHOSEN = "Viridis", "#E0592A"
WRITTEN = 200  # cells that have their number written in them at most


def heads(table: dict, column: str, ends: tuple[float, float], chosen: Sequence[int] = (), fixed=None) -> dict:
    """Layer x head map of keys on a log colour between `ends`, the `chosen` cells framed, those `fixed` by hand
    underlined. A click selects a point whose customdata is [layer, head]."""
    layers, places = sorted(set(table["layer"])), sorted(set(table["head"]))
    every = list(zip(table["layer"], table["head"], strict=True))
    found = dict(zip(every, table[column], strict=True))
    written = len(every) <= WRITTEN
    low, high = (math.log10(max(end, 1)) for end in ends)
    ticks = [tick for power in range(7) for tick in (10**power, 3 * 10**power) if low <= math.log10(tick) <= high]
    cells = {
        "type": "heatmap",
        "x": places,
        "y": layers,
        "z": [[math.log10(max(found[row, at], 1)) for at in places] for row in layers],
        "zmin": low,
        "zmax": max(high, low + 0.01),
        "colorscale": SCALE,
        "showscale": not written,  # where the numbers stand in the cells
        "colorbar": {"thickness": 12, "title": {"text": "keys, log", "side": "right"}}
        | {"tickvals": [math.log10(tick) for tick in ticks], "ticktext": [f"{tick:,}" for tick in ticks]},
        "xgap": 1,
        "ygap": 1,
        "hoverinfo": "skip",
    }
    hand = list(fixed) if fixed is not None else [False] * len(every)
    middle = (low + high) / 2
    points = {
        "type": "scatter",
        "mode": "markers+text" if written else "markers",
        "x": table["head"],
        "y": table["layer"],
        "customdata": [list(cell) for cell in every],
        "text": [
            f"<u>{value:,.0f}</u>" if by else f"{value:,.0f}" for value, by in zip(table[column], hand, strict=True)
        ],
        "textfont": {
            "size": 12,
            "color": ["#FFFFFF" if math.log10(max(value, 1)) < middle else "#101010" for value in table[column]],
        },
        "hovertext": [
            f"layer {row}, head {at}<br>{value:,.0f} keys{', set by hand' if by else ''}"
            for (row, at), value, by in zip(every, table[column], hand, strict=True)
        ],
        "marker": {"size": 30, "symbol": "square", "opacity": 0, "color": HERE},
        "selected": {"marker": {"opacity": 0}},
        "unselected": {"marker": {"opacity": 0}},
        "showlegend": False,
        "hovertemplate": "%{hovertext}<extra></extra>",
    }
    count = len(places)
    return figure(
        [cells, points],
        "head",
        "layer",
        height=max(280, min(620, 34 * len(layers) + 110)),
        xaxis=_steps(places),
        yaxis=_steps(layers),
        margin={"l": 44, "r": 8, "t": 30, "b": 50},
        shapes=[_frame(cell % count, cell // count) for cell in chosen],
        dragmode=False,
        clickmode="event+select",
    )


def _steps(places: Sequence[int]) -> dict:
    """An axis of whole numbers, every cell inside."""
    return {"dtick": max(1, len(places) // 16), "showgrid": False, "range": [places[0] - 0.5, places[-1] + 0.5]}


def _frame(head: int, layer: int) -> dict:
    edges = {"x0": head - 0.5, "x1": head + 0.5, "y0": layer - 0.5, "y1": layer + 0.5}
    return {"type": "rect", **edges, "line": {"color": CHOSEN, "width": 3}}
