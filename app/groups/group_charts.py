"""Figures of the groups beside their controls and beside another router."""

from collections.abc import Sequence

from app.ui.charts import CHANCE, HERE, LAYERS, NAMES, RANDOM, SHARE, TOKENS, band, figure, safe
from app.ui.plots import SHARE_OF_1, Look, curve
from app.ui.reading import rows_of

ARMS = {
    "this router": Look(HERE, "solid", "circle"),
    "random centroids": Look(RANDOM, "dash", "square"),
    "k-means": Look(TOKENS, "dashdot", "diamond"),
}


def purity(rows: Sequence[dict]) -> dict:
    """Mean purity of the groups of every layer for each arm, and of random sets of equal size."""
    by_arm = {arm: [row for row in rows if row["arm"] == arm] for arm in ARMS}
    data = [
        curve(arm, by_arm[arm], "layer", "purity", look, f"layer %{{x}}<br>{arm}: %{{y:.1%}} of one kind")
        for arm, look in ARMS.items()
    ]
    name, look = "random sets of equal size", Look(CHANCE, "dot", None)
    hover = f"layer %{{x}}<br>{name}: %{{y:.1%}}"
    data.append(curve(f"{name} (chance)", by_arm["this router"], "layer", "purity_random", look, hover))
    return figure(data, "layer", "purity, mean over tokens", xaxis=LAYERS, yaxis=SHARE)


def agreement(rows: Sequence[dict], layer: int) -> dict:
    """Tokens in matching groups, by layer, with what shuffled labels reach."""
    hover = "layer %{x}<br>%{y:.1%} of the tokens in matching groups"
    chance = Look(CHANCE, "dot", "circle-open")
    data = [
        curve("both routers", rows, "layer", "agreement", Look(), hover),
        curve("chance", rows, "layer", "chance", chance, "layer %{x}<br>shuffled labels: %{y:.1%}"),
    ]
    return figure(data, "layer", "share of the tokens", xaxis=LAYERS, yaxis=SHARE_OF_1, shapes=[band(layer)])


def confusion(cells: dict, router: str, second: str) -> dict:
    """Tokens of each group (rows) by group of the other router (columns, matched ones on the diagonal), as a share of
    the row; the number of tokens stands in each cell."""
    groups, places = (sorted(set(cells[axis])) for axis in ("group", "place"))
    by_group = [rows_of(cells, group=group) for group in groups]
    tokens = [dict(zip(row["place"], row["tokens"], strict=True)) for row in by_group]
    counts = [[row[place] for place in places] for row in tokens]
    partners = dict(zip(by_group[0]["place"], by_group[0]["other"], strict=True))
    trace = {
        "type": "heatmap",
        "x": [f"{partners[place]}" for place in places],
        "y": [f"{group}" for group in groups],
        "z": [[count / max(1, sum(row)) for count in row] for row in counts],
        "text": [[f"{count:,}" if count else "" for count in row] for row in counts],
        "texttemplate": "%{text}" if len(groups) <= 16 else "",
        "colorscale": [[0, "rgba(20,131,176,0)"], [1, HERE]],
        **{"zmin": 0, "zmax": 1, "xgap": 1, "ygap": 1},
        "colorbar": {"tickformat": ".0%", "thickness": 12, "title": {"text": "of the row"}},
        "hovertemplate": "group %{y}, column %{x}<br>%{text} tokens, %{z:.0%} of the group<extra></extra>",
    }
    x, y = f"group of {safe(second)}, in the order of its partner", f"group of {safe(router)}"
    margin = {"l": 60, "r": 16, "t": 28, "b": 60}
    return figure([trace], x, y, margin=margin, xaxis=NAMES, yaxis=NAMES | {"autorange": "reversed"})
