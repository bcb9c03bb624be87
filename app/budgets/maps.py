"""Maps of keys: a number for every head, on one log colour, what was chosen and what was set by hand marked."""

import math
from collections.abc import Sequence

from app.ui.head_map import head_map

WRITTEN = 200  # cells that have their number written in them at most


def heads(table: dict, column: str, ends: tuple[float, float], chosen: Sequence[int] = (), fixed=None) -> dict:
    """Layer x head map of keys on a log colour between `ends`, the `chosen` cells framed, those `fixed` by hand
    underlined. A click selects a point whose customdata is [layer, head]."""
    heads = list(zip(table["layer"], table["head"], strict=True))
    written = len(heads) <= WRITTEN
    low, high = (math.log10(max(end, 1)) for end in ends)
    ticks = [tick for power in range(7) for tick in (10**power, 3 * 10**power) if low <= math.log10(tick) <= high]
    values = {cell: math.log10(max(keys, 1)) for cell, keys in zip(heads, table[column], strict=True)}
    cells = {
        "zmin": low,
        "zmax": max(high, low + 0.01),
        "showscale": not written,  # where the numbers stand in the cells
        "colorbar": {"thickness": 12, "title": {"text": "keys, log", "side": "right"}}
        | {"tickvals": [math.log10(tick) for tick in ticks], "ticktext": [f"{tick:,}" for tick in ticks]},
    }
    hand = list(fixed) if fixed is not None else [False] * len(heads)
    middle = (low + high) / 2
    points = {
        "mode": "markers+text" if written else "markers",
        "text": [
            f"<u>{value:,.0f}</u>" if by else f"{value:,.0f}" for value, by in zip(table[column], hand, strict=True)
        ],
        "textfont": {
            "size": 12,
            "color": ["#FFFFFF" if math.log10(max(value, 1)) < middle else "#101010" for value in table[column]],
        },
        "hovertext": [
            f"layer {row}, head {head}<br>{value:,.0f} keys{', set by hand' if by else ''}"
            for (row, head), value, by in zip(heads, table[column], hand, strict=True)
        ],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }
    return head_map(table, values, cells, points, [heads[cell] for cell in chosen], height=34)
