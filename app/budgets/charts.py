"""Figures of KV budgets: change by reads and by position, ranks by position, two calibrations, a query router."""

from collections.abc import Sequence

from app.budgets.words import share, signed
from app.ui.charts import CHANCE, HERE, RANDOM, bars, error_bars, figure, level, line, marks, style, upright

NAMED = (1.0, 0.5, 0.25, 0.1, 0.05, 0.02)  # shares that stand on the axis
CHOSEN, BAD = "#E0592A", "#D55E00"
SLIDER = {"height": 360, "margin": {"l": 66, "r": 16, "t": 30, "b": 96}, "transition": {"duration": 0}}


def by_reads(rows: Sequence[dict], chosen: float) -> dict:
    """Change of perplexity against the share of the causal pairs that is read: all positions, the last ones, the worst
    ones; reading less is to the right."""
    x = [row["share"] for row in rows]
    lines = (
        ("all positions", [row["difference"] for row in rows], HERE, "solid", "circle"),
        ("last positions", [row["bins"][-1]["difference"] for row in rows], "#A07CC5", "dash", "diamond"),
        ("worst positions", [row["worst_bin_difference"] for row in rows], BAD, "dot", "square"),
    )
    return figure(
        [line(name, x, *look, f"{name}<br>%{{x:.0%}} of the reads: %{{y:+.1%}}") for name, *look in lines],
        "share of the causal pairs that is read (log)",
        "change of perplexity",
        xaxis={"type": "log", "autorange": "reversed", "tickvals": NAMED, "ticktext": [share(tick) for tick in NAMED]},
        yaxis={"tickformat": "+.0%"},
        shapes=[upright(chosen, CHOSEN, "solid", 2), level(0.0)],
        **SLIDER,
    )


def by_position(row: dict, ends: tuple[float, float], allowed: float) -> dict:
    """Change of perplexity by position in the window with 95% intervals; the worst stretch stands out."""
    cells = row["bins"]
    worst = [bin_ == row["worst_bin"] for bin_ in range(len(cells))]
    labels = [
        f"{_stretch(cell)}<br>perplexity {cell['perplexity']:.2f}, dense {cell['perplexity_dense']:.2f}<br>"
        f"{signed(cell['difference'])}"
        for cell in cells
    ]
    data = bars(
        "",
        _middles(cells),
        [cell["difference"] for cell in cells],
        [BAD if is_worst else HERE for is_worst in worst],
        "%{text}",
        marker={"pattern": {"shape": ["/" if is_worst else "" for is_worst in worst], "solidity": 0.3, "size": 6}},
        width=[0.86 * (cell["last"] - cell["first"]) for cell in cells],
        error_y=_error(cells, RANDOM),
        text=labels,
        textposition="none",
    )
    return figure(
        [data],
        "position in the window (striped: the worst stretch)",
        "change of perplexity",
        yaxis={"tickformat": "+.0%", "range": list(ends)},
        shapes=_allowed(allowed),
        **SLIDER,
    )


def perplexity(row: dict) -> dict:
    """Perplexity by position in the window with 95% intervals, beside that of dense attention."""
    cells = row["bins"]
    labels, hover = [_stretch(cell) for cell in cells], "<br>%{text}<br>perplexity %{y:.2f}"
    middle, low, high, dense = ([cell[f"perplexity{end}"] for cell in cells] for end in ("", "_low", "_high", "_dense"))
    bounds = error_bars(middle, low, high, BAD)
    data = [
        line("now", _middles(cells), middle, BAD, "solid", "square", f"now{hover}", text=labels, error_y=bounds),
        line("dense", _middles(cells), dense, HERE, "dash", "circle", f"dense{hover}", text=labels),
    ]
    return figure(data, "position in the window", "perplexity", yaxis={"rangemode": "tozero"}, **SLIDER)


def _middles(cells: Sequence[dict]) -> list[float]:
    return [(cell["first"] + cell["last"] - 1) / 2 for cell in cells]


def _stretch(cell: dict) -> str:
    return f"positions {cell['first']:,} to {cell['last'] - 1:,}, n = {cell['n']:,}"


def _allowed(limit: float) -> list[dict]:
    return [level(0.0), level(limit, CHANCE), level(-limit, CHANCE)]


def ends_of(rows: Sequence[dict]) -> tuple[float, float]:
    """One range of changes by position that holds for all rows, so that a moved slider is seen."""
    cells = [cell for row in rows for cell in row["bins"]]
    low = min(min(cell["difference"], cell["low"] or 0.0) for cell in cells)
    high = max(max(cell["difference"], cell["high"] or 0.0) for cell in cells)
    room = 0.05 * (high - low or 1.0)
    return low - room, high + room


def sweep(rows: Sequence[dict], chosen: int | None, allowed: float) -> dict:
    """Change of perplexity by position under each cap, the chosen one thick."""
    data = []
    for series, row in enumerate(rows):
        (colour, symbol), name = style(series), f"cap {row['cap']:,}"
        hover, width = f"{name}<br>position %{{x:,.0f}}: %{{y:+.1%}}", 4 if row["cap"] == chosen else 1.5
        change = [cell["difference"] for cell in row["bins"]]
        data.append(line(name, _middles(row["bins"]), change, colour, "solid", symbol, hover, width))
    return figure(
        data,
        "position in the window, tokens",
        "change of perplexity",
        height=400,
        yaxis={"tickformat": "+.1~%"},
        shapes=_allowed(allowed),
        margin={"l": 70, "r": 16, "t": 30, "b": 100},
    )


def ranks_by_position(rows: Sequence[dict], min_pos: int) -> dict:
    """Mean rank by position beside the keys that a position can see at all."""
    hover = "position %{x:,.0f}: %{y:,.0f} keys"
    data = [
        line("mean rank of all heads", _middles(rows), [r["rank"] for r in rows], HERE, "solid", "circle", hover),
        line("keys it can see", _middles(rows), [r["most"] for r in rows], RANDOM, "dot", None, hover),
    ]
    layout = {"shapes": [upright(min_pos, CHOSEN, "solid", 2)]} if min_pos else {}
    axis = {"type": "log", "tickformat": ",~g"}
    return figure(data, "position in the window, tokens", "keys (log)", yaxis=axis, **layout)


def two(table: dict, names: tuple[str, str]) -> dict:
    """Rank of every head in two calibrations, with the line of equal ranks."""
    ranks, second = table["rank"], table["other"]
    ends = [min([*ranks, *second]) * 0.9, max([*ranks, *second]) * 1.1]
    cells = zip(table["layer"], table["head"], table["change"], strict=True)
    labels = [f"layer {row}, head {head}: {signed(change)}" for row, head, change in cells]
    look, hover = {"color": HERE, "size": 9, "opacity": 0.8}, "%{text}<br>%{x:,.1f} and %{y:,.1f} keys"
    data = [
        line("equal ranks", ends, ends, RANDOM, "dot", None),
        marks("a head", ranks, second, hover, look, text=labels),
    ]
    axis = {"type": "log", "tickformat": ",~g"}
    return figure(data, f"rank in {names[0]}, keys", f"rank in {names[1]}, keys", height=380, xaxis=axis, yaxis=axis)


def router(rows: Sequence[dict]) -> dict:
    """Change of perplexity against dense under each cap: static budgets and those that a network predicts."""
    arms = [arm for arm in dict.fromkeys(row["arm"] for row in rows) if arm != "dense"]
    data = []
    for series, arm in enumerate(arms):
        cells = [row for row in rows if row["arm"] == arm]
        (colour, symbol), dash = style(series), ("solid", "dash", "dot", "dashdot")[series % 4]
        x, y = ([row[name] for row in cells] for name in ("cap", "difference"))
        hover = f"{arm}<br>cap %{{x}}: %{{y:+.1%}}"
        data.append(line(arm, x, y, colour, dash, symbol, hover, error_y=_error(cells, colour)))
    caps = sorted({row["cap"] for row in rows if row["cap"]})
    axis = {"type": "log", "tickvals": caps, "ticktext": [f"{cap:,}" for cap in caps]}
    return figure(data, "cap, keys (log)", "change of perplexity", height=380, xaxis=axis, yaxis={"tickformat": "+.0%"})


def _error(rows: Sequence[dict], colour: str) -> dict:
    return error_bars(*([row[key] for row in rows] for key in ("difference", "low", "high")), colour)
