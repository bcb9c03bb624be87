"""Figures of KV budgets: change by reads and by position, ranks by position, two calibrations, a query router."""

from collections.abc import Sequence

from app.budgets.words import share, signed
from app.ui.charts import CHANCE, GROUPS, HERE, RANDOM, SYMBOLS, error_bars, figure, level, line, upright

NAMED = (1.0, 0.5, 0.25, 0.1, 0.05, 0.02)  # shares that stand on the axis
CHOSEN, BAD = "#E0592A", "#D55E00"


def by_reads(rows: Sequence[dict], chosen: float) -> dict:
    """Change of perplexity against the share of the causal pairs that is read: all positions, the last ones, the worst
    ones; reading less is to the right."""
    x = [row["share"] for row in rows]
    lines = (
        ("all positions", [row["difference"] for row in rows], HERE, "solid", "circle"),
        ("last positions", [row["bins"][-1]["difference"] for row in rows], "#A07CC5", "dash", "diamond"),
        ("worst positions", [row["worst_bin_difference"] for row in rows], BAD, "dot", "square"),
    )
    data = [
        line(
            name,
            x,
            y,
            colour,
            dash,
            mark,
            hovertemplate=f"{name}<br>%{{x:.0%}} of the reads: %{{y:+.1%}}<extra></extra>",
        )
        for name, y, colour, dash, mark in lines
    ]
    return figure(
        data,
        "share of the causal pairs that is read (log)",
        "change of perplexity",
        height=360,
        xaxis={"type": "log", "autorange": "reversed", "tickvals": NAMED, "ticktext": [share(one) for one in NAMED]},
        yaxis={"tickformat": "+.0%"},
        shapes=[upright(chosen, CHOSEN, "solid", 2), level(0.0)],
        margin={"l": 66, "r": 16, "t": 30, "b": 96},
        transition={"duration": 0},
    )


def by_position(row: dict, ends: tuple[float, float], allowed: float) -> dict:
    """Change of perplexity by position in the window with 95 % intervals; the worst stretch stands out."""
    cells = row["bins"]
    worst = row["worst_bin"]
    bars = {
        "type": "bar",
        "x": [(cell["first"] + cell["last"] - 1) / 2 for cell in cells],
        "y": [cell["difference"] for cell in cells],
        "width": [0.86 * (cell["last"] - cell["first"]) for cell in cells],
        "marker": {
            "color": [BAD if at == worst else HERE for at in range(len(cells))],
            "pattern": {"shape": ["/" if at == worst else "" for at in range(len(cells))], "solidity": 0.3, "size": 6},
        },
        "error_y": _error(cells, RANDOM),
        "text": [
            f"positions {cell['first']:,} to {cell['last'] - 1:,}, n = {cell['n']:,}<br>perplexity "
            f"{cell['perplexity']:.2f}, dense {cell['perplexity_dense']:.2f}<br>{signed(cell['difference'])}"
            for cell in cells
        ],
        "textposition": "none",
        "hovertemplate": "%{text}<extra></extra>",
    }
    return figure(
        [bars],
        "position in the window (striped: the worst stretch)",
        "change of perplexity",
        height=360,
        yaxis={"tickformat": "+.0%", "range": list(ends)},
        shapes=[level(0.0), level(allowed, CHANCE), level(-allowed, CHANCE)],
        margin={"l": 66, "r": 16, "t": 30, "b": 96},
        transition={"duration": 0},
    )


def perplexity(row: dict) -> dict:
    """Perplexity by position in the window with 95 % intervals, beside that of dense attention."""
    cells = row["bins"]
    x = [(cell["first"] + cell["last"] - 1) / 2 for cell in cells]
    said = [f"positions {cell['first']:,} to {cell['last'] - 1:,}, n = {cell['n']:,}" for cell in cells]
    hover = "<br>%{text}<br>perplexity %{y:.2f}<extra></extra>"
    found = [cell["perplexity"] for cell in cells]
    own = line("now", x, found, BAD, "solid", "square", text=said, hovertemplate=f"now{hover}")
    low, high = ([cell[f"perplexity_{end}"] for cell in cells] for end in ("low", "high"))
    dense = [cell["perplexity_dense"] for cell in cells]
    return figure(
        [
            own | {"error_y": error_bars(found, low, high, BAD)},
            line("dense", x, dense, HERE, "dash", "circle", text=said, hovertemplate=f"dense{hover}"),
        ],
        "position in the window",
        "perplexity",
        height=360,
        yaxis={"rangemode": "tozero"},
        margin={"l": 66, "r": 16, "t": 30, "b": 96},
        transition={"duration": 0},
    )


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
    for at, row in enumerate(rows):
        cells, name = row["bins"], f"cap {row['cap']:,}"
        made = line(
            name, [(c["first"] + c["last"] - 1) / 2 for c in cells], [c["difference"] for c in cells],
            GROUPS[at % len(GROUPS)], "solid", SYMBOLS[at % len(SYMBOLS)],
            hovertemplate=f"{name}<br>position %{{x:,.0f}}: %{{y:+.1%}}<extra></extra>",
        )  # fmt: skip
        made["line"]["width"] = 4 if row["cap"] == chosen else 1.5
        data.append(made)
    return figure(
        data,
        "position in the window, tokens",
        "change of perplexity",
        height=400,
        yaxis={"tickformat": "+.1~%"},
        shapes=[level(0.0), level(allowed, CHANCE), level(-allowed, CHANCE)],
        margin={"l": 70, "r": 16, "t": 30, "b": 100},
    )


def ranks_by_position(rows: Sequence[dict], min_pos: int) -> dict:
    """Mean rank by position beside the keys that a position can see at all."""
    x = [(row["first"] + row["last"] - 1) / 2 for row in rows]
    hover = "position %{x:,.0f}: %{y:,.0f} keys<extra></extra>"
    data = [
        line("mean rank of all heads", x, [r["rank"] for r in rows], HERE, "solid", "circle", hovertemplate=hover),
        line("keys it can see", x, [r["most"] for r in rows], RANDOM, "dot", None, hovertemplate=hover),
    ]
    more = {"shapes": [upright(min_pos, CHOSEN, "solid", 2)]} if min_pos else {}
    return figure(
        data, "position in the window, tokens", "keys (log)", yaxis={"type": "log", "tickformat": ",~g"}, **more
    )


def two(table: dict, names: tuple[str, str]) -> dict:
    """Rank of every head in two calibrations, with the line of equal ranks."""
    ranks, other = table["rank"], table["other"]
    ends = [min([*ranks, *other]) * 0.9, max([*ranks, *other]) * 1.1]
    cells = zip(table["layer"], table["head"], table["change"], strict=True)
    data = [
        line("equal ranks", ends, ends, RANDOM, "dot", None, hoverinfo="skip"),
        {
            "type": "scatter",
            "mode": "markers",
            "name": "a head",
            "x": ranks,
            "y": other,
            "text": [f"layer {row}, head {at}: {signed(change)}" for row, at, change in cells],
            "marker": {"color": HERE, "size": 9, "opacity": 0.8},
            "hovertemplate": "%{text}<br>%{x:,.1f} and %{y:,.1f} keys<extra></extra>",
        },
    ]
    axis = {"type": "log", "tickformat": ",~g"}
    return figure(data, f"rank in {names[0]}, keys", f"rank in {names[1]}, keys", height=380, xaxis=axis, yaxis=axis)


def router(rows: Sequence[dict]) -> dict:
    """Change of perplexity against dense under each cap: static budgets and those that a network predicts."""
    arms = [arm for arm in dict.fromkeys(row["arm"] for row in rows) if arm != "dense"]
    data = []
    for at, arm in enumerate(arms):
        own = [row for row in rows if row["arm"] == arm]
        made = line(
            arm, [row["cap"] for row in own], [row["difference"] for row in own], GROUPS[at % len(GROUPS)],
            ("solid", "dash", "dot", "dashdot")[at % 4], SYMBOLS[at % len(SYMBOLS)],
            hovertemplate=f"{arm}<br>cap %{{x}}: %{{y:+.1%}}<extra></extra>",
        )  # fmt: skip
        data.append(made | {"error_y": _error(own, GROUPS[at % len(GROUPS)])})
    caps = sorted({row["cap"] for row in rows if row["cap"]})
    axis = {"type": "log", "tickvals": caps, "ticktext": [f"{cap:,}" for cap in caps]}
    return figure(data, "cap, keys (log)", "change of perplexity", height=380, xaxis=axis, yaxis={"tickformat": "+.0%"})


def _error(rows: Sequence[dict], colour: str) -> dict:
    """95 % intervals of paired changes."""
    return error_bars(*([row[key] for row in rows] for key in ("difference", "low", "high")), colour)
