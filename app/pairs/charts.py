"""Figures of the pairs page: where pairs lie, and what same-group pairs draw against chance."""

from collections.abc import Sequence

from app.ui.charts import ARMS, CHANCE, HERE, RANDOM, band, bins, figure, line, line_style, safe


def pairs(table: dict, tokens: int, open_row: int | None) -> dict:
    """Every listed pair at (query position, key position); the open one is ringed, the diagonal is distance 0."""
    rows = range(len(table["layer"]))
    data = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "pairs",
            "showlegend": False,
            "x": table["query_position"],
            "y": table["key_position"],
            "customdata": list(rows),
            "text": [f"{safe(table['query'][i])} ← {safe(table['key'][i])}" for i in rows],
            "marker": {
                "color": table["attention"],
                "colorscale": [[0, RANDOM], [0.5, HERE], [1, "#C97A14"]],
                "size": [13 if i == open_row else 8 for i in rows],
                "line": {"width": [2.5 if i == open_row else 0 for i in rows], "color": CHANCE},
                "showscale": True,
                "colorbar": {"title": {"text": "attention"}, "thickness": 10, "tickformat": ".0%"},
            },
            "hovertemplate": "%{text}<br>query %{x:,}, key %{y:,}<extra></extra>",
        },
        line("distance 0", [0, tokens], [0, tokens], RANDOM, "dot", None, hoverinfo="skip", showlegend=False),
    ]
    return figure(
        data,
        "query (attends), token position",
        "key (is attended), token position",
        height=400,
        margin={"l": 60, "r": 16, "t": 28, "b": 48},
        dragmode="pan",
        xaxis={"range": [0, tokens]},
        yaxis={"range": [0, tokens]},
    )


def lift(table: dict, layer: int | None) -> dict:
    """Lift of every arm in every layer, with the line 1.0 of chance."""
    data = []
    for arm in ARMS:
        rows = [i for i, name in enumerate(table["arm"]) if name == arm]
        hover = f"layer %{{x}}<br>{arm}: %{{y:.2f}} times chance<extra></extra>"
        data.append(
            line(arm, _at(table, "layer", rows), _at(table, "lift", rows), *line_style(arm), hovertemplate=hover)
        )
    layers = sorted(set(table["layer"]))
    data.append(line("chance (1.0)", layers, [1.0] * len(layers), CHANCE, "dot", None, hoverinfo="skip"))
    return figure(
        data,
        "layer",
        "lift (times chance)",
        height=360,
        yaxis={"rangemode": "tozero"},
        xaxis={"dtick": 1},
        shapes=[] if layer is None else [band(layer)],
    )


def mass(table: dict) -> dict:
    """Share of the far attention that same-group pairs hold, against their share of the far pairs, by distance."""
    data = []
    for arm in ARMS:
        rows = [i for i, name in enumerate(table["arm"]) if name == arm]
        if not rows:
            continue
        x = bins(_at(table, "low", rows), _at(table, "high", rows))
        hover = f"%{{x}} tokens back<br>{arm}: %{{y:.1%}} of the attention<extra></extra>"
        data.append(line(arm, x, _at(table, "mass_share", rows), *line_style(arm), hovertemplate=hover))
        if arm == "this router":
            chance = "%{x} tokens back<br>%{y:.1%} of the pairs<extra></extra>"
            data.append(
                line(
                    "its share of the pairs (chance)",
                    x,
                    _at(table, "pairs_share", rows),
                    CHANCE,
                    "dot",
                    None,
                    hovertemplate=chance,
                )
            )
    return figure(
        data,
        "distance from query (attends) to key (is attended), tokens",
        "share of same-group pairs",
        height=360,
        yaxis={"tickformat": ".0%", "rangemode": "tozero"},
        xaxis={"type": "category"},
    )


def _at(table: dict, column: str, rows: Sequence[int]) -> list:
    return [table[column][i] for i in rows]
