"""Figures of Train a router: one training, routing collapse, balance by hand, the causality check."""

import math
from collections.abc import Sequence
from typing import Any

from app.selection.evidence import COLLAPSE_MEASURES
from app.ui.charts import (
    CHANCE,
    GROUPS,
    HERE,
    LAYERS,
    RANDOM,
    SHARE,
    SHUFFLED,
    bars,
    even,
    figure,
    levels,
    line,
    marks,
    safe,
    style,
    upright,
)
from app.ui.plots import AT_ONCE, SHARE_OF_1, Look, bounds, columns, curve, note
from app.ui.reading import rows_of

NATS = "step %{x:,}<br>%{y:.4f} nats per token"
HARD = Look(GROUPS[1], "dash", "square")
LARGEST = "largest group's share of the tokens"
# Pixels: the picture of the page.
TALL = 510
# What is followed as a share.
SHARES = ("share", "start_share")
DASHES = ("dash", "dot", "dashdot", "longdash", "longdashdot", "5px,2px", "solid")
KNOWN = {
    "sinkhorn": Look(HERE, "solid", "circle"),
    "softmax": Look(GROUPS[1], "dash", "square"),
    "sinkhorn with 50 iterations": Look(GROUPS[2], "dot", "diamond"),
}


# --- one training -----------------------------------------------------------------------------------------------------


def defined(x: Sequence, y: Sequence) -> tuple[list, list]:
    """The points whose value is there."""
    places = [place for place, value in enumerate(y) if value is not None and not math.isnan(value)]
    return [x[place] for place in places], [y[place] for place in places]


def losses(log: dict, until: int | None = None) -> dict:
    """Training loss of every step with its running mean, and the hard loss where it was measured; the axis ends at the
    step `until`, where the training has not come there yet."""
    steps, loss = [step + 1 for step in log["step"]], log["loss"]
    wide = max(5, len(loss) // 20)
    windows = (loss[max(0, end - wide) : end] for end in range(1, len(loss) + 1))
    mean = [sum(window) / len(window) for window in windows]
    data = [
        line("one step", steps, loss, RANDOM, "solid", None, NATS, 1, opacity=0.45),
        line(f"mean of {wide} steps", steps, mean, HERE, "solid", None, NATS),
    ]
    x, hard = defined(steps, log.get("hard", []))
    data += [line("hard, as at inference", x, hard, *HARD, NATS)] if x else []
    axis = {} if until is None else {"range": [0, until]}
    return figure(data, "optimiser step", "loss, nats per token", height=360, xaxis=axis)


def hard_losses(points: Sequence[Sequence[float]]) -> dict:
    """The hard loss that a stored router remembers, (step, nats)."""
    steps, loss = zip(*points, strict=True)
    data = [line("hard, as at inference", steps, loss, *HARD, NATS)]
    return figure(data, "optimiser step", "loss, nats per token", xaxis={"rangemode": "tozero"})


def shares(table: dict, even_share: float, until: int | None = None) -> dict:
    """Largest group's share of every layer over the steps, with the line of even groups; the axis ends at the step
    `until`, where the training has not come there yet."""
    data = []
    for layer in sorted(set(table["layer"])):
        (colour, symbol), name = style(layer), f"layer {layer}"
        look, hover = Look(colour, DASHES[layer % len(DASHES)], symbol), f"{name}, step %{{x:,}}<br>%{{y:.1%}}"
        data.append(curve(name, rows_of(table, layer=layer), "step", "share", look, f"{hover} of the tokens"))
    last = until or max(table["step"], default=1)
    data.append(even([0, last], even_share))
    return figure(data, "optimiser step", LARGEST, height=TALL, yaxis=SHARE, xaxis={"range": [0, last]})


def by_layer(dominance: Sequence[float], even_share: float) -> dict:
    """Largest group's share of every layer of a finished router."""
    x = list(range(len(dominance)))
    data = [line("largest group, causal", x, dominance, *Look(), "layer %{x}<br>%{y:.1%} of the tokens")]
    data.append(even([0, max(x, default=0)], even_share))
    return figure(data, "layer", LARGEST, height=TALL, xaxis=LAYERS, yaxis=SHARE)


# --- routing collapse -------------------------------------------------------------------------------------------------


def collapse(study: dict, rows: Sequence[str], measure: str, every_layer: bool) -> dict:
    """One thick line for each row (mean of layers), with `every_layer` a thin one for each of its layers; phase 2
    continues phase 1, and the border between them is marked. Shares have the lines 1/K and balanced chance."""
    names, border = [row["row"] for row in study["rows"]], _last_step(study, 1)
    points = [point | {"at": point["step"] + (point["phase"] - 1) * border} for point in study["curves"]]
    points.sort(key=lambda point: point["at"])
    value, percent = "%{y:.1%}" if measure in SHARES else "%{y:.3f}", measure in SHARES
    data = []
    for row in rows:
        place, mine = names.index(row), [point for point in points if point["row"] == row]
        colour, symbol = style(place + 2)
        look = KNOWN.get(row, Look(colour, DASHES[place % len(DASHES)], symbol))
        for layer in sorted({point["layer"] for point in mine}, reverse=True):
            of_layer = [point for point in mine if point["layer"] == layer]
            name = f"{row}, layer {layer}" if layer >= 0 else f"{row} (mean of layers)"
            hover = f"{safe(name)}<br>step %{{x:,}}: {value}"
            if layer < 0:
                data.append(curve(name, of_layer, "at", measure, look, hover, width=3))
            elif every_layer:
                thin = look._replace(symbol=None)
                data.append(curve(name, of_layer, "at", measure, thin, hover, width=1, opacity=0.6, showlegend=False))
    if percent:
        data += levels([0, _last_step(study, 2) + border], study["even"], study["chance"])
    sides = (("right", -6, "router alone"), ("left", 6, "whole model"))
    notes = [note(words, border, colour=RANDOM, xanchor=side, xshift=shift) for side, shift, words in sides]
    margin, yaxis = {"l": 68, "r": 16, "t": 34, "b": 128}, SHARE if percent else {}
    marked: dict[str, Any] = {"shapes": [upright(border)], "annotations": notes} if border else {}
    x, y = "optimiser step (phase 1, then phase 2)", COLLAPSE_MEASURES[measure][1]
    return figure(data, x, y, 440, margin=margin, yaxis=yaxis, **marked)


def _last_step(study: dict, phase: int) -> int:
    return max((point["step"] for point in study["curves"] if point["phase"] == phase), default=0)


# --- balance by hand --------------------------------------------------------------------------------------------------


def balance_by_layer(table: dict, even_share: float, chance: float) -> dict:
    """Largest group's share of every layer as bars, with the lines 1/K and balanced chance."""
    x, hover = table["layer"], "layer %{x}<br>largest group: %{y:.1%} of the tokens"
    largest = bars("largest group", x, table["share"], HERE, hover)
    return _balance([largest, *levels([x[0] - 0.5, x[-1] + 0.5], even_share, chance)], "layer", LAYERS)


def balance_by_iterations(table: dict, even_share: float, chance: float, chosen: int, trap: int) -> dict:
    """The same after 0 to 20 iterations: mean and worst layer, and the assignment's mass in its fullest group; the
    chosen number and the trap are marked."""
    x = table["iterations"]
    looks = {
        "worst": ("worst layer", Look()),
        "mean": ("mean of layers", Look(RANDOM, "dash", "square")),
        "mass": ("mass, worst layer", Look(SHUFFLED, "dot", "diamond")),
    }
    data = [
        curve(name, table, "iterations", key, look, f"%{{x}} iterations<br>{name}: %{{y:.1%}}")
        for key, (name, look) in looks.items()
    ]
    drawn = _balance([*data, *levels([x[0], x[-1]], even_share, chance)], "Sinkhorn iterations", {"tickvals": list(x)})
    drawn["layout"]["shapes"] = [upright(trap, CHANCE), upright(chosen, HERE, "solid")]
    drawn["layout"]["annotations"] = [note(f"trap: {trap}", trap, colour=CHANCE, xshift=4)]
    return drawn


def _balance(data: list[dict], x: str, xaxis: dict) -> dict:
    top = max(value for trace in data for value in trace["y"])
    yaxis = {"tickformat": ".0%", "range": [0, min(1.02, max(2 * data[-1]["y"][0], 1.1 * top))]}
    margin = {"l": 60, "r": 16, "t": 30, "b": 116}
    return figure(data, x, LARGEST, 380, xaxis=xaxis, yaxis=yaxis, margin=margin, **AT_ONCE)


# --- the causality check ----------------------------------------------------------------------------------------------


def future_gain(rows: Sequence[dict]) -> dict:
    """Loss with literal minus loss with causal membership, nats per token, a mark with its 95% interval for each way
    of reading."""
    names = [row["reading"] if not row["gate"] else f"{row['reading']}, {row['gate']} gate" for row in rows]
    look = {"color": HERE, "size": 11}
    details = {"error_x": bounds(rows, "mean", ("low", "high"), HERE), "showlegend": False}
    means = columns(rows, "mean")["mean"]
    data = [marks("literal minus causal", means, names, "%{y}<br>%{x:+.4f} nats per token", look, **details)]
    return figure(
        data,
        "literal minus causal, nats per token",
        "",
        margin={"l": 130, "r": 16, "t": 28, "b": 60},
        shapes=[upright(0)],
        yaxis={"autorange": "reversed"},
        xaxis={"tickformat": "+.3~f"},
    )


def agreement(groups: Sequence[float], predictions: float) -> dict:
    """Tokens in the same group by both rules, by layer, with the line of equal predictions."""
    x = list(range(len(groups)))
    data = [line("same group", x, groups, *Look(), "layer %{x}<br>%{y:.1%} of the tokens in the same group")]
    label = f"same likeliest next token ({predictions:.0%})"
    data.append(line(label, x, [predictions] * len(x), RANDOM, "dash", None))
    return figure(data, "layer", "share of the tokens", xaxis=LAYERS, yaxis=SHARE_OF_1)
