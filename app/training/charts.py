"""Figures of one training run."""

import math
from collections.abc import Sequence

from app.training.collapse_charts import DASHES
from app.ui.charts import GROUPS, HERE, RANDOM, SYMBOLS, even, figure, line


def known(x: Sequence, y: Sequence) -> tuple[list, list]:
    """The points whose value is there."""
    there = [i for i, value in enumerate(y) if value is not None and not math.isnan(value)]
    return [x[i] for i in there], [y[i] for i in there]


def losses(log: dict, until: int | None = None) -> dict:
    """Training loss of every step with its running mean, and the hard loss where it was measured; the axis ends at the
    step `until`, where the training has not come there yet."""
    steps, loss = [step + 1 for step in log["step"]], log["loss"]
    wide = max(5, len(loss) // 20)
    mean = [sum(loss[max(0, i + 1 - wide) : i + 1]) / len(loss[max(0, i + 1 - wide) : i + 1]) for i in range(len(loss))]
    hover = "step %{x:,}<br>%{y:.4f} nats per token<extra></extra>"
    thin = line("one step", steps, loss, RANDOM, "solid", None, opacity=0.45, hovertemplate=hover)
    thin["line"]["width"] = 1
    data = [thin, line(f"mean of {wide} steps", steps, mean, HERE, "solid", None, hovertemplate=hover)]
    x, hard = known(steps, log.get("hard", []))
    if x:
        data.append(line("hard, as at inference", x, hard, GROUPS[1], "dash", "square", hovertemplate=hover))
    xaxis = {} if until is None else {"range": [0, until]}
    return figure(data, "optimiser step", "loss, nats per token", height=360, xaxis=xaxis)


def hard_losses(points: Sequence[Sequence[float]]) -> dict:
    """The hard loss that a stored router remembers, (step, nats)."""
    hover = "step %{x:,}<br>%{y:.4f} nats per token<extra></extra>"
    x, y = [step for step, _ in points], [loss for _, loss in points]
    made = line("hard, as at inference", x, y, GROUPS[1], "dash", "square", hovertemplate=hover)
    return figure([made], "optimiser step", "loss, nats per token", height=340, xaxis={"rangemode": "tozero"})


def shares(table: dict, even_share: float) -> dict:
    """Largest group's share of every layer over the steps, with the line of even groups."""
    data = []
    for layer in sorted(set(table["layer"])):
        own = [i for i, value in enumerate(table["layer"]) if value == layer]
        x, y = [table["step"][i] for i in own], [table["share"][i] for i in own]
        look = GROUPS[layer % len(GROUPS)], DASHES[layer % len(DASHES)], SYMBOLS[layer % len(SYMBOLS)]
        hover = f"layer {layer}, step %{{x:,}}<br>%{{y:.1%}} of the tokens<extra></extra>"
        data.append(line(f"layer {layer}", x, y, *look, hovertemplate=hover))
    return _share_figure(data, [0, max(table["step"], default=1)], even_share, "optimiser step", {})


def by_layer(dominance: Sequence[float], even_share: float) -> dict:
    """Largest group's share of every layer of a finished router."""
    x = list(range(len(dominance)))
    hover = "layer %{x}<br>%{y:.1%} of the tokens<extra></extra>"
    data = [line("largest group, causal", x, dominance, HERE, "solid", "circle", hovertemplate=hover)]
    return _share_figure(data, [0, max(x, default=0)], even_share, "layer", {"dtick": 1})


def _share_figure(data: list[dict], ends: Sequence[float], share: float, x: str, xaxis: dict) -> dict:
    return figure(
        [*data, even(ends, share)],
        x,
        "largest group's share of the tokens",
        height=360,
        xaxis=xaxis,
        yaxis={"tickformat": ".0%", "rangemode": "tozero"},
    )
