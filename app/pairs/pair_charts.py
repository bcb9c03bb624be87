"""Figures of the pairs page: where pairs lie, and what same-group pairs draw against chance."""

from typing import Any

from analysis.runs import Run
from app import cached
from app.ui import plots
from app.ui.charts import (
    ARMS,
    CHANCE,
    DISTANCE,
    HERE,
    LAYERS,
    RANDOM,
    SHARE,
    band,
    bins,
    figure,
    from_bins,
    line,
    line_style,
    marks,
    safe,
)
from app.ui.reading import rows_of


def places(table: dict, tokens: int, open_row: int | None) -> dict:
    """Every listed pair at (query position, key position); the open one is ringed, the diagonal is distance 0."""
    rows = range(len(table["layer"]))
    marker = {
        "color": table["attention"],
        "colorscale": [[0, RANDOM], [0.5, HERE], [1, "#C97A14"]],
        "size": [13 if i == open_row else 8 for i in rows],
        "line": {"width": [2.5 if i == open_row else 0 for i in rows], "color": CHANCE},
        "showscale": True,
        "colorbar": {"title": {"text": "attention"}, "thickness": 10, "tickformat": ".2~%"},
    }
    labels = {"text": [f"{safe(table['query'][i])} ← {safe(table['key'][i])}" for i in rows], "customdata": list(rows)}
    hover, ends = "%{text}<br>query %{x:,}, key %{y:,}", [0, tokens]
    x, y = table["query_position"], table["key_position"]
    data = [
        marks("pairs", x, y, hover, marker, showlegend=False, **labels),
        line("distance 0", ends, ends, RANDOM, "dot", None, showlegend=False),
    ]
    look: dict[str, Any] = {"height": 400, "margin": {"l": 60, "r": 16, "t": 28, "b": 48}, "dragmode": "pan"}
    look |= {axis: {"range": ends} for axis in ("xaxis", "yaxis")}
    return figure(data, "query (attends), token position", "key (is attended), token position", **look)


def lift_chart(run: Run, key: str, layer: int | None, top: float | None = None) -> None:
    """Lift of every arm in every layer, with the line 1.0 of chance; `top`: the largest of any panel beside it."""
    table, data = cached.columns(run, "controls"), []
    for arm in ARMS:
        arm_rows = rows_of(table, arm=arm)
        hover = f"layer %{{x}}<br>{arm}: %{{y:.2f}} times chance"
        data.append(line(arm, arm_rows["layer"], arm_rows["lift"], *line_style(arm), hover))
    layers = sorted(set(table["layer"]))
    data.append(line("chance (1.0)", layers, [1.0] * len(layers), CHANCE, "dot", None))
    shapes = [] if layer is None else [band(layer)]
    yaxis = {"rangemode": "tozero"} if top is None else {"range": [0, 1.08 * top]}
    drawn = figure(data, "layer", "lift (times chance)", height=360, xaxis=LAYERS, yaxis=yaxis, shapes=shapes)
    plots.draw(drawn, table, "Attention of same-group pairs against chance", key, "lift")


def mass_chart(run: Run) -> None:
    """Share of the far attention that same-group pairs hold, against their share of the far pairs, by distance."""
    table, data, place = cached.columns(run, "distance"), [], "%{x} tokens back<br>"
    for arm in ARMS:
        arm_rows = rows_of(table, arm=arm)
        x, hover = bins(arm_rows["low"], arm_rows["high"]), f"{place}{arm}: %{{y:.1%}} of the attention"
        if x:
            data.append(line(arm, x, arm_rows["mass_share"], *line_style(arm), hover))
    ours = rows_of(table, arm="this router")
    x, hover = bins(ours["low"], ours["high"]), f"{place}%{{y:.1%}} of the pairs"
    if x:
        name = "its share of the pairs (chance)"
        data.insert(1, line(name, x, ours["pairs_share"], CHANCE, "dot", None, hover))
    axis = from_bins(ours["low"], ours["high"])
    drawn = figure(data, DISTANCE, "share of same-group pairs", height=360, xaxis=axis, yaxis=SHARE)
    plots.draw(drawn, table, "Attention held by same-group pairs, by distance", "pairs_mass", "attention mass")
