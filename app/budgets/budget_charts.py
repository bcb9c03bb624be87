"""Figures of KV budgets: change by reads and by position, ranks by position, two calibrations."""

from collections.abc import Sequence
from typing import Any

from app.budgets.budget_words import share, signed
from app.ui.charts import CHANCE, HERE, RANDOM, bars, figure, level, line, marks, style, upright
from app.ui.plots import AT_ONCE, CHANGE, Look, bounds, columns, curve

# Shares that stand on the axis.
NAMED = (1.0, 0.5, 0.25, 0.1, 0.05, 0.02)
CHOSEN, BAD = "#E0592A", "#D55E00"
SLIDER: dict[str, Any] = {"height": 360, "margin": {"l": 66, "r": 16, "t": 30, "b": 96}} | AT_ONCE
LOG = {"type": "log", "tickformat": ",~g"}
# Columns of the ends of a paired change.
PAIRED = ("low", "high")


def by_reads(rows: Sequence[dict], chosen: float) -> dict:
    """Change of perplexity against the share of the causal pairs that is read: all positions, the last ones, the worst
    ones; reading less is to the right."""
    rows = [row | {"last": row["bins"][-1]["difference"]} for row in rows]
    looks = {
        "difference": ("all positions", Look(HERE)),
        "last": ("last positions", Look("#A07CC5", "dash", "diamond")),
        "worst_bin_difference": ("worst positions", Look(BAD, "dot", "square")),
    }
    data = [
        curve(name, rows, "share", column, look, f"{name}<br>%{{x:.0%}} of the reads: %{{y:+.1%}}")
        for column, (name, look) in looks.items()
    ]
    axis = {"type": "log", "autorange": "reversed", "tickvals": NAMED, "ticktext": [share(tick) for tick in NAMED]}
    layout: dict[str, Any] = {
        "xaxis": axis,
        "yaxis": CHANGE,
        "shapes": [upright(chosen, CHOSEN, "solid", 2), level(0.0)],
    } | SLIDER
    return figure(data, "share of the causal pairs that is read (log)", "change of perplexity", **layout)


def by_position(row: dict, ends: tuple[float, float], allowed: float) -> dict:
    """Change of perplexity by position in the window with 95% intervals; the worst stretch stands out."""
    cells = row["bins"]
    worst = [place == row["worst_bin"] for place in range(len(cells))]
    labels = [
        f"{_stretch(cell)}<br>perplexity {cell['perplexity']:.2f}, dense {cell['perplexity_dense']:.2f}<br>"
        f"{signed(cell['difference'])}"
        for cell in cells
    ]
    pattern = {"shape": ["/" if is_worst else "" for is_worst in worst], "solidity": 0.3, "size": 6}
    data = bars(
        "",
        _middles(cells),
        columns(cells, "difference")["difference"],
        [BAD if is_worst else HERE for is_worst in worst],
        "%{text}",
        marker={"pattern": pattern},
        width=[0.86 * (cell["last"] - cell["first"]) for cell in cells],
        error_y=bounds(cells, "difference", PAIRED, RANDOM),
        text=labels,
        textposition="none",
    )
    look: dict[str, Any] = {"yaxis": CHANGE | {"range": list(ends)}, "shapes": _allowed(allowed)} | SLIDER
    return figure([data], "position in the window (striped: the worst stretch)", "change of perplexity", **look)


def perplexity(row: dict) -> dict:
    """Perplexity by position in the window with 95% intervals, beside that of dense attention."""
    cells = [cell | {"middle": middle} for cell, middle in zip(row["bins"], _middles(row["bins"]), strict=True)]
    labels, hover = [_stretch(cell) for cell in cells], "<br>%{text}<br>perplexity %{y:.2f}"
    ends = ("perplexity_low", "perplexity_high")
    data = [
        curve("now", cells, "middle", "perplexity", Look(BAD, "solid", "square"), f"now{hover}", ends, text=labels),
        curve("dense", cells, "middle", "perplexity_dense", Look(HERE, "dash"), f"dense{hover}", text=labels),
    ]
    return figure(data, "position in the window", "perplexity", yaxis={"rangemode": "tozero"}, **SLIDER)


def ends_of(rows: Sequence[dict]) -> tuple[float, float]:
    """One range of changes by position that holds for all rows, so that a moved slider is seen."""
    cells = [cell for row in rows for cell in row["bins"]]
    low = min(min(cell["difference"], cell["low"] or 0.0) for cell in cells)
    high = max(max(cell["difference"], cell["high"] or 0.0) for cell in cells)
    room = 0.05 * (high - low or 1.0)
    return low - room, high + room


def sweep(rows: Sequence[dict], chosen: int | None, allowed: float, absolute: bool = False) -> dict:
    """Change of perplexity by position under each cap, the chosen one thick; `absolute`: in perplexity."""
    data = []
    for place, row in enumerate(rows):
        (colour, symbol), name = style(place), f"cap {row['cap']:,}"
        shape, width = "+.2f" if absolute else "+.1%", 4 if row["cap"] == chosen else 1.5
        hover = f"{name}<br>position %{{x:,.0f}}: %{{y:{shape}}}"
        change = columns(row["bins"], "difference")["difference"]
        if absolute:
            change = [cell["perplexity"] - cell["perplexity_dense"] for cell in row["bins"]]
        data.append(line(name, _middles(row["bins"]), change, colour, "solid", symbol, hover, width))
    look: dict[str, Any] = {
        "height": 400,
        "yaxis": {"tickformat": "+.2f"} if absolute else CHANGE,
        "shapes": _allowed(allowed),
        "margin": {"l": 70, "r": 16, "t": 30, "b": 100},
    }
    return figure(data, "position in the window, tokens", "change of perplexity", **look)


def ranks_by_position(rows: Sequence[dict], min_pos: int) -> dict:
    """Mean rank by position beside the keys that a position can see at all."""
    hover, middles = "position %{x:,.0f}: %{y:,.0f} keys", _middles(rows)
    ranks, most = columns(rows, "rank", "most").values()
    data = [line("mean rank of all heads", middles, ranks, *Look(), hover)]
    data.append(line("keys it can see", middles, most, RANDOM, "dot", None, hover))
    layout: dict[str, Any] = {"shapes": [upright(min_pos, CHOSEN, "solid", 2)]} if min_pos else {}
    return figure(data, "position in the window, tokens", "keys (log)", yaxis=LOG, **layout)


def two(table: dict, names: tuple[str, str]) -> dict:
    """Rank of every head in two calibrations, with the line of equal ranks."""
    ranks = [*table["rank"], *table["other"]]
    ends = [min(ranks) * 0.9, max(ranks) * 1.1]
    cells = zip(table["layer"], table["head"], table["change"], strict=True)
    labels = [f"head {layer}.{head}: {signed(change)}" for layer, head, change in cells]
    look, hover = {"color": HERE, "size": 9, "opacity": 0.8}, "%{text}<br>%{x:,.1f} and %{y:,.1f} keys"
    data = [line("equal ranks", ends, ends, RANDOM, "dot", None)]
    data.append(marks("a head", table["rank"], table["other"], hover, look, text=labels))
    across, up = (f"rank in {name}, tokens" for name in names)
    return figure(data, across, up, height=380, xaxis=LOG, yaxis=LOG)


def _middles(cells: Sequence[dict]) -> list[float]:
    return [(cell["first"] + cell["last"] - 1) / 2 for cell in cells]


def _stretch(cell: dict) -> str:
    return f"positions {cell['first']:,} to {cell['last'] - 1:,}, n = {cell['n']:,}"


def _allowed(limit: float) -> list[dict]:
    return [level(0.0), level(limit, CHANCE), level(-limit, CHANCE)]
