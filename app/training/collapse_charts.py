"""Figures of routing collapse: what is followed over the steps of both phases, pooled and layer by layer."""

from collections.abc import Sequence

from app.selection.evidence import COLLAPSE_MEASURES
from app.ui.charts import GROUPS, HERE, RANDOM, SHARE, figure, levels, line, safe, style, upright

SHARES = ("share", "start_share")
DASHES = ("dash", "dot", "dashdot", "longdash", "longdashdot", "5px,2px", "solid")
KNOWN = {
    "sinkhorn": (HERE, "solid", "circle"),
    "softmax": (GROUPS[1], "dash", "square"),
    "sinkhorn with 50 iterations": (GROUPS[2], "dot", "diamond"),
}


def look(row: str, place: int) -> tuple[str, str, str]:
    """Colour, dash and mark of a row of the study."""
    if row in KNOWN:
        return KNOWN[row]
    colour, symbol = style(place + 2)
    return colour, DASHES[place % len(DASHES)], symbol


def curves(study: dict, rows: Sequence[str], measure: str, every_layer: bool) -> dict:
    """One thick line for each row (mean of layers), with `every_layer` a thin one for each of its layers; phase 2
    continues phase 1, and the border between them is marked. Shares have the lines 1/K and balanced chance."""
    names, border = [row["row"] for row in study["rows"]], phase_border(study)
    percent = measure in SHARES
    value = "%{y:.1%}" if percent else "%{y:.3f}"
    data = []
    for row in rows:
        colour, dash, symbol = look(row, names.index(row))
        points = [point for point in study["curves"] if point["row"] == row]
        for layer in sorted({point["layer"] for point in points if point["layer"] >= 0}) if every_layer else ():
            x, y = _points(points, layer, measure, border)
            hover, faint = (
                f"{safe(row)}, layer {layer}<br>step %{{x:,}}: {value}",
                {"opacity": 0.6, "showlegend": False},
            )
            data.append(line(f"{row}, layer {layer}", x, y, colour, dash, None, hover, 1, **faint))
        x, y = _points(points, -1, measure, border)
        hover = f"{safe(row)}, mean of layers<br>step %{{x:,}}: {value}"
        data.append(line(f"{row} (mean of layers)", x, y, colour, dash, symbol, hover, 3))
    last = max((point["step"] for point in study["curves"] if point["phase"] == 2), default=0) + border
    if percent:
        data += levels([0, last], study["even"], study["chance"])
    return figure(
        data,
        "optimiser step (phase 1, then phase 2)",
        COLLAPSE_MEASURES[measure][1],
        height=440,
        margin={"l": 68, "r": 16, "t": 34, "b": 128},
        yaxis=SHARE if percent else {},
        shapes=[upright(border)] if border else [],
        annotations=[_phase(border, "right", "router alone"), _phase(border, "left", "whole model")] if border else [],
    )


def phase_border(study: dict) -> int:
    """Steps of phase 1."""
    return max((point["step"] for point in study["curves"] if point["phase"] == 1), default=0)


def _points(points: Sequence[dict], layer: int, measure: str, border: int) -> tuple[list, list]:
    of_layer = [point for point in points if point["layer"] == layer]
    of_layer.sort(key=lambda point: (point["phase"], point["step"]))
    return [point["step"] + (point["phase"] - 1) * border for point in of_layer], [point[measure] for point in of_layer]


def _phase(step: int, side: str, words: str) -> dict:
    shift = {"right": -6, "left": 6}[side]
    place = {"x": step, "xanchor": side, "xshift": shift, "y": 1.0, "yref": "paper", "yanchor": "bottom"}
    return {"text": words, "showarrow": False, "font": {"size": 12, "color": RANDOM}} | place
