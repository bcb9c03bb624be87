"""Figures of the groups beside their controls and beside another router."""

from collections.abc import Sequence

from app.ui.charts import CHANCE, HERE, LAYERS, NAMES, RANDOM, SHARE, TOKENS, band, figure, line, safe

LOOKS = {
    "this router": (HERE, "solid", "circle"),
    "random centroids": (RANDOM, "dash", "square"),
    "k-means": (TOKENS, "dashdot", "diamond"),
}


def purity(rows: Sequence[dict]) -> dict:
    """Mean purity of the groups of every layer for each arm, and of random sets of equal size."""
    data = []
    for arm, look in LOOKS.items():
        arm_rows = [row for row in rows if row["arm"] == arm]
        x, y = [row["layer"] for row in arm_rows], [row["purity"] for row in arm_rows]
        data.append(line(arm, x, y, *look, f"layer %{{x}}<br>{arm}: %{{y:.1%}} of one kind"))
    router_rows = [row for row in rows if row["arm"] == "this router"]
    x, y = [row["layer"] for row in router_rows], [row["purity_random"] for row in router_rows]
    name = "random sets of equal size"
    data.append(line(f"{name} (chance)", x, y, CHANCE, "dot", None, f"layer %{{x}}<br>{name}: %{{y:.1%}}"))
    return figure(data, "layer", "purity, mean over tokens", xaxis=LAYERS, yaxis=SHARE)


def agreement(rows: Sequence[dict], layer: int) -> dict:
    """Tokens in matching groups, by layer, with what shuffled labels reach."""
    x, y, chance = ([row[name] for row in rows] for name in ("layer", "agreement", "chance"))
    hover = "layer %{x}<br>%{y:.1%} of the tokens in matching groups"
    data = [
        line("both routers", x, y, HERE, "solid", "circle", hover),
        line("chance", x, chance, CHANCE, "dot", "circle-open", "layer %{x}<br>shuffled labels: %{y:.1%}"),
    ]
    yaxis = {"tickformat": ".0%", "range": [0, 1.02]}
    return figure(data, "layer", "share of the tokens", xaxis=LAYERS, yaxis=yaxis, shapes=[band(layer)])


def confusion(cells: dict, router: str, second: str) -> dict:
    """Tokens of each group (rows) by group of the other router (columns, matched ones on the diagonal), as a share of
    the row; the number of tokens stands in each cell."""
    groups = sorted(set(cells["group"]))
    places = sorted(set(cells["place"]))
    rows = {(g, p): i for i, (g, p) in enumerate(zip(cells["group"], cells["place"], strict=True))}
    counts = [[cells["tokens"][rows[group, place]] for place in places] for group in groups]
    trace = {
        "type": "heatmap",
        "x": [f"{cells['other'][rows[groups[0], place]]}" for place in places],
        "y": [f"{group}" for group in groups],
        "z": [[count / max(1, sum(row)) for count in row] for row in counts],
        "text": [[f"{count:,}" if count else "" for count in row] for row in counts],
        "texttemplate": "%{text}" if len(groups) <= 16 else "",
        "colorscale": [[0, "rgba(20,131,176,0)"], [1, HERE]],
        **{"zmin": 0, "zmax": 1, "xgap": 1, "ygap": 1},
        "colorbar": {"tickformat": ".0%", "thickness": 12, "title": {"text": "of the row"}},
        "hovertemplate": "group %{y}, column %{x}<br>%{text} tokens, %{z:.0%} of the group<extra></extra>",
    }
    return figure(
        [trace],
        f"group of {safe(second)}, in the order of its partner",
        f"group of {safe(router)}",
        xaxis=NAMES,
        yaxis=NAMES | {"autorange": "reversed"},
        margin={"l": 60, "r": 16, "t": 28, "b": 60},
    )
