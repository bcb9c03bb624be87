"""Figures of the causality check."""

from collections.abc import Sequence

from app.ui.charts import HERE, LAYERS, RANDOM, error_bars, figure, line, marks, upright


def differences(rows: Sequence[dict]) -> dict:
    """Loss with literal minus loss with causal membership, nats per token, a mark with its 95% interval for each way
    of reading."""
    names = [row["reading"] if not row["gate"] else f"{row['reading']}, {row['gate']} gate" for row in rows]
    mean, low, high = ([row[key] for row in rows] for key in ("mean", "low", "high"))
    look_more = {"error_x": error_bars(mean, low, high, HERE), "showlegend": False}
    hover, look = "%{y}<br>%{x:+.4f} nats per token", {"color": HERE, "size": 11}
    return figure(
        [marks("literal minus causal", mean, names, hover, look, **look_more)],
        "literal minus causal, nats per token",
        "",
        margin={"l": 130, "r": 16, "t": 28, "b": 60},
        yaxis={"autorange": "reversed"},
        xaxis={"tickformat": "+.3~f"},
        shapes=[upright(0)],
    )


def agreement(groups: Sequence[float], predictions: float) -> dict:
    """Tokens in the same group by both rules, by layer, with the line of equal predictions."""
    x = list(range(len(groups)))
    hover = "layer %{x}<br>%{y:.1%} of the tokens in the same group"
    label = f"same likeliest next token ({predictions:.0%})"
    data = [line("same group", x, groups, HERE, "solid", "circle", hover)]
    data.append(line(label, x, [predictions] * len(x), RANDOM, "dash", None))
    yaxis = {"tickformat": ".0%", "range": [0, 1.02]}
    return figure(data, "layer", "share of the tokens", xaxis=LAYERS, yaxis=yaxis)
