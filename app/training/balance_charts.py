"""Figures of balance by hand."""

from app.ui.charts import CHANCE, HERE, LAYERS, RANDOM, SHUFFLED, bars, figure, levels, line, upright


def layers(table: dict, even: float, chance: float) -> dict:
    """Largest group's share of every layer as bars, with the lines 1/K and balanced chance."""
    x = table["layer"]
    hover = "layer %{x}<br>largest group: %{y:.1%} of the tokens"
    largest = bars("largest group", x, table["share"], HERE, hover)
    return _figure([largest, *levels([x[0] - 0.5, x[-1] + 0.5], even, chance)], "layer", LAYERS)


def iterations(table: dict, even: float, chance: float, chosen: int, trap: int) -> dict:
    """The same after 0 to 20 iterations: mean and worst layer, and the assignment's mass in its fullest group; the
    chosen number and the trap are marked."""
    x = table["iterations"]
    looks = {
        "worst": ("worst layer", HERE, "solid", "circle"),
        "mean": ("mean of layers", RANDOM, "dash", "square"),
        "mass": ("mass, worst layer", SHUFFLED, "dot", "diamond"),
    }
    data = [
        line(name, x, table[key], *look, f"%{{x}} iterations<br>{name}: %{{y:.1%}}")
        for key, (name, *look) in looks.items()
    ]
    drawn = _figure([*data, *levels([x[0], x[-1]], even, chance)], "Sinkhorn iterations", {"tickvals": list(x)})
    drawn["layout"]["shapes"] = [upright(trap, CHANCE), upright(chosen, HERE, "solid")]
    drawn["layout"]["annotations"] = [
        {"text": f"trap: {trap}", "x": trap, "xanchor": "left", "xshift": 4, "y": 1, "yref": "paper"}
        | {"yanchor": "bottom", "showarrow": False, "font": {"color": CHANCE, "size": 12}}
    ]
    return drawn


def _figure(data: list[dict], x: str, xaxis: dict) -> dict:
    top = max(value for trace in data for value in trace["y"])
    return figure(
        data,
        x,
        "largest group's share of the tokens",
        height=380,
        margin={"l": 60, "r": 16, "t": 30, "b": 116},
        xaxis=xaxis,
        yaxis={"tickformat": ".0%", "range": [0, min(1.02, max(2 * data[-1]["y"][0], 1.1 * top))]},
        transition={"duration": 0},
    )
