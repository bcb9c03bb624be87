"""Figures of the groups beside their controls and beside another router."""

from collections.abc import Sequence

from app.ui.charts import ARMS, CHANCE, HERE, RANDOM, TOKENS, band, figure, line, safe

LOOKS = {
    "this router": (ARMS["this router"][0], "solid", "circle"),
    "random centroids": (RANDOM, "dash", "square"),
    "k-means": (TOKENS, "dashdot", "diamond"),
}


def purity(rows: Sequence[dict]) -> dict:
    """Mean purity of the groups of every layer for each arm, and of random sets of equal size."""
    data = []
    for arm, look in LOOKS.items():
        own = [row for row in rows if row["arm"] == arm]
        hover = f"layer %{{x}}<br>{arm}: %{{y:.1%}} of one kind<extra></extra>"
        x, y = [row["layer"] for row in own], [row["purity"] for row in own]
        data.append(line(arm, x, y, *look, hovertemplate=hover))
    mine = [row for row in rows if row["arm"] == "this router"]
    x, y = [row["layer"] for row in mine], [row["purity_random"] for row in mine]
    hover = "layer %{x}<br>random sets of equal size: %{y:.1%}<extra></extra>"
    data.append(line("random sets of equal size (chance)", x, y, CHANCE, "dot", None, hovertemplate=hover))
    return figure(
        data,
        "layer",
        "purity, mean over tokens",
        yaxis={"tickformat": ".0%", "rangemode": "tozero"},
        xaxis={"dtick": 1},
    )


def agreement(rows: Sequence[dict], layer: int) -> dict:
    """Tokens in matching groups, by layer, with what shuffled labels reach."""
    x = [row["layer"] for row in rows]
    hover = "layer %{x}<br>%{y:.1%} of the tokens in matching groups<extra></extra>"
    chance = "layer %{x}<br>shuffled labels: %{y:.1%}<extra></extra>"
    return figure(
        [
            line("both routers", x, [row["agreement"] for row in rows], HERE, "solid", "circle", hovertemplate=hover),
            line("chance", x, [row["chance"] for row in rows], CHANCE, "dot", "circle-open", hovertemplate=chance),
        ],
        "layer",
        "share of the tokens",
        yaxis={"tickformat": ".0%", "range": [0, 1.02]},
        xaxis={"dtick": 1},
        shapes=[band(layer)],
    )


def confusion(cells: dict, router: str, other: str) -> dict:
    """Tokens of each group (rows) by group of the other router (columns, matched ones on the diagonal), as a share of
    the row; the number of tokens stands in each cell."""
    groups = sorted(set(cells["group"]))
    places = sorted(set(cells["place"]))
    at = {(g, p): i for i, (g, p) in enumerate(zip(cells["group"], cells["place"], strict=True))}
    counts = [[cells["tokens"][at[group, place]] for place in places] for group in groups]
    shares = [[count / max(1, sum(row)) for count in row] for row in counts]
    columns = [f"{cells['other'][at[groups[0], place]]}" for place in places]
    few = len(groups) <= 16
    trace = {
        "type": "heatmap",
        "x": columns,
        "y": [f"{group}" for group in groups],
        "z": shares,
        "text": [[f"{count:,}" if count else "" for count in row] for row in counts],
        "texttemplate": "%{text}" if few else "",
        "colorscale": [[0, "rgba(20,131,176,0)"], [1, HERE]],
        "zmin": 0,
        "zmax": 1,
        "xgap": 1,
        "ygap": 1,
        "colorbar": {"tickformat": ".0%", "thickness": 12, "title": {"text": "of the row"}},
        "hovertemplate": "group %{y}, column %{x}<br>%{text} tokens, %{z:.0%} of the group<extra></extra>",
    }
    return figure(
        [trace],
        f"group of {safe(other)}, in the order of its partner",
        f"group of {safe(router)}",
        xaxis={"type": "category"},
        yaxis={"type": "category", "autorange": "reversed"},
        margin={"l": 60, "r": 16, "t": 28, "b": 60},
    )
