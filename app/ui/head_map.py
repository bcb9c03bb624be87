"""A map of layers and heads: a cell in colour for each, a point on it that a click selects, frames on the chosen."""

from collections.abc import Iterable, Sequence

from app.ui.charts import HERE, figure
from app.ui.figure import colours

SCALE, BOTH_WAYS = colours("Viridis"), colours("RdBu")
CHOSEN = "#E0592A"
UNSEEN = {"marker": {"opacity": 0}}


def head_map(
    table: dict, values: dict, cells: dict, points: dict, chosen: Iterable[tuple[int, int]], height: int
) -> dict:
    """The figure of a `table` with the columns `layer` and `head`, coloured by `values`, {(layer, head): number}.

    `cells`: the heatmap's own settings; `points`: how a point reads, its customdata is [layer, head]; `height` of a
    row, in pixels."""
    layers, places = sorted(set(table["layer"])), sorted(set(table["head"]))
    colours = {
        "type": "heatmap",
        "x": places,
        "y": layers,
        "z": [[values.get((layer, head)) for head in places] for layer in layers],
        "colorscale": SCALE,
        "xgap": 1,
        "ygap": 1,
        "hoverinfo": "skip",
    }
    clicked = {
        "type": "scatter",
        "mode": "markers",
        "x": table["head"],
        "y": table["layer"],
        "customdata": [list(cell) for cell in zip(table["layer"], table["head"], strict=True)],
        "marker": {"size": 30, "symbol": "square", "opacity": 0, "color": HERE},
        "selected": UNSEEN,
        "unselected": UNSEEN,
        "showlegend": False,
    }
    return figure(
        [colours | cells, clicked | points],
        "head",
        "layer",
        height=max(290, min(620, height * len(layers) + 120)),
        xaxis=_steps(places),
        yaxis=_steps(layers),
        margin={"l": 52, "r": 12, "t": 30, "b": 54},
        shapes=[_frame(*cell) for cell in chosen],
        dragmode=False,
        clickmode="event+select",
    )


def _steps(places: Sequence[int]) -> dict:
    """An axis of whole numbers, every cell inside."""
    return {"dtick": max(1, len(places) // 16), "showgrid": False, "range": [places[0] - 0.5, places[-1] + 0.5]}


def _frame(layer: int, head: int) -> dict:
    edges = {"x0": head - 0.5, "x1": head + 0.5, "y0": layer - 0.5, "y1": layer + 0.5}
    return {"type": "rect", **edges, "line": {"color": CHOSEN, "width": 3}}
