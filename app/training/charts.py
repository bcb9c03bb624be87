"""Figures of one training run."""

import math
from collections.abc import Sequence

from app.training.collapse_charts import DASHES
from app.ui.charts import GROUPS, HERE, LAYERS, RANDOM, SHARE, even, figure, line, style
from app.ui.reading import rows_of

NATS = "step %{x:,}<br>%{y:.4f} nats per token"


def known(x: Sequence, y: Sequence) -> tuple[list, list]:
    """The points whose value is there."""
    numbers = [i for i, value in enumerate(y) if value is not None and not math.isnan(value)]
    return [x[i] for i in numbers], [y[i] for i in numbers]


def losses(log: dict, until: int | None = None) -> dict:
    """Training loss of every step with its running mean, and the hard loss where it was measured; the axis ends at the
    step `until`, where the training has not come there yet."""
    steps, loss = [step + 1 for step in log["step"]], log["loss"]
    wide = max(5, len(loss) // 20)
    mean = [sum(loss[max(0, i + 1 - wide) : i + 1]) / len(loss[max(0, i + 1 - wide) : i + 1]) for i in range(len(loss))]
    data = [
        line("one step", steps, loss, RANDOM, "solid", None, NATS, 1, opacity=0.45),
        line(f"mean of {wide} steps", steps, mean, HERE, "solid", None, NATS),
    ]
    x, hard = known(steps, log.get("hard", []))
    if x:
        data.append(_hard(x, hard))
    xaxis = {} if until is None else {"range": [0, until]}
    return figure(data, "optimiser step", "loss, nats per token", height=360, xaxis=xaxis)


def hard_losses(points: Sequence[Sequence[float]]) -> dict:
    """The hard loss that a stored router remembers, (step, nats)."""
    curve = _hard([step for step, _ in points], [loss for _, loss in points])
    return figure([curve], "optimiser step", "loss, nats per token", xaxis={"rangemode": "tozero"})


def _hard(steps: Sequence, loss: Sequence) -> dict:
    return line("hard, as at inference", steps, loss, GROUPS[1], "dash", "square", NATS)


def shares(table: dict, even_share: float) -> dict:
    """Largest group's share of every layer over the steps, with the line of even groups."""
    data = []
    for layer in sorted(set(table["layer"])):
        columns, (colour, symbol), dash = rows_of(table, layer=layer), style(layer), DASHES[layer % len(DASHES)]
        hover = f"layer {layer}, step %{{x:,}}<br>%{{y:.1%}} of the tokens"
        data.append(line(f"layer {layer}", columns["step"], columns["share"], colour, dash, symbol, hover))
    return _share_figure(data, [0, max(table["step"], default=1)], even_share, "optimiser step", {})


def by_layer(dominance: Sequence[float], even_share: float) -> dict:
    """Largest group's share of every layer of a finished router."""
    x = list(range(len(dominance)))
    hover = "layer %{x}<br>%{y:.1%} of the tokens"
    data = [line("largest group, causal", x, dominance, HERE, "solid", "circle", hover)]
    return _share_figure(data, [0, max(x, default=0)], even_share, "layer", LAYERS)


def _share_figure(data: list[dict], ends: Sequence[float], share: float, x: str, xaxis: dict) -> dict:
    title = "largest group's share of the tokens"
    return figure([*data, even(ends, share)], x, title, height=360, xaxis=xaxis, yaxis=SHARE)
