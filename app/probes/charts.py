"""Figures of the long-context tests: maps of right answers, scores by length and by task, chance always drawn."""

from collections.abc import Sequence

from app.probes.words import AXES
from app.ui.charts import CHANCE, NAMES, bars, error_bars, figure, line, safe, style
from app.ui.head_map import SCALE

SURE = "*"  # marks a cell that is above chance by itself
DARK = 0.62  # share of right answers from which the colour behind a number is light


def grid(rows: Sequence[dict], axis: str | None) -> dict:
    """Share of right answers, depth (or examples) x length, of one method; one fixed scale, 0 to 100%. A cell whose
    interval lies above chance is marked."""
    lengths = sorted({row["length"] for row in rows})
    places = sorted({row[axis] for row in rows}, reverse=axis == "examples") if axis else [None]
    cells = {(row[axis] if axis else None, row["length"]): row for row in rows}
    cells_of = [[cells.get((place, length)) for length in lengths] for place in places]
    names = [f"{place:.0%}" if axis == "depth" else f"{place:,}" if axis else "" for place in places]
    chance = rows[0]["chance"]
    bar = {"thickness": 12, "title": {"text": "right answers", "side": "right"}}
    bar |= {"tickvals": [0, chance, 0.5, 1], "ticktext": ["0%", f"chance {chance:.0%}", "50%", "100%"]}
    across, down = list(range(len(lengths))), list(range(len(places)))  # plotly reads names that are numbers as places
    trace = {
        "type": "heatmap",
        **{"x": across, "y": down, "z": [[cell and cell["score"] for cell in row] for row in cells_of]},
        **{"zmin": 0, "zmax": 1, "colorscale": SCALE, "colorbar": bar, "xgap": 2, "ygap": 2, "hoverongaps": False},
        "customdata": [[_says(cell) for cell in row] for row in cells_of],
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    notes = [_number(x, y, cell) for y, row in enumerate(cells_of) for x, cell in enumerate(row) if cell]
    columns = [f"{length:,}" for length in lengths]
    return figure(
        [trace],
        "prompt, tokens",
        AXES[axis],
        height=max(240, 46 * len(places) + 120),
        margin={"l": 70, "r": 16, "t": 20, "b": 56},
        xaxis={"showgrid": False, "tickvals": across, "ticktext": columns},
        yaxis={"showgrid": False, "tickvals": down, "ticktext": names, "autorange": "reversed"},
        annotations=notes,
    )


def _number(x: int, y: int, cell: dict) -> dict:
    sure = cell["low"] > cell["chance"]
    colour = "#1A1A1A" if cell["score"] > DARK else "#FFFFFF"
    text = f"{cell['score']:.0%}{f' {SURE}' if sure else ''}"
    return {"x": x, "y": y, "text": text, "showarrow": False, "font": {"color": colour, "size": 13}}


def _says(cell: dict | None) -> str:
    if cell is None:
        return ""
    spelled = f"{cell['score']:.0%} right ({cell['low']:.0%} to {cell['high']:.0%}), n = {cell['n']:,}"
    if cell["difference"] is not None:
        spelled += f"<br>{100 * cell['difference']:+.0f} points against dense"
    return spelled + (
        f"<br>{cell['truncated']:,} prompts cut, the answer in {cell['lost']:,}" if cell["truncated"] else ""
    )


def by_length(lines: dict[str, list[dict]], chance: float) -> dict:
    """Share of right answers against the length, a line for each method with its 95% interval, over all places."""
    data = []
    for series, (name, rows) in enumerate(lines.items()):
        (colour, symbol), dash = style(series), "solid" if series == 0 else "dash"
        x, y = ([row[column] for row in rows] for column in ("length", "score"))
        hover = f"{safe(name)}: %{{y:.0%}} at %{{x:,}} tokens"
        data.append(line(safe(name), x, y, colour, dash, symbol, hover, error_y=_bounds(rows, colour)))
    lengths = sorted({row["length"] for rows in lines.values() for row in rows})
    data.append(_chance(lengths, chance))
    return figure(
        data,
        "prompt, tokens",
        "right answers",
        xaxis={"type": "log", "tickvals": lengths, "ticktext": [f"{length:,}" for length in lengths]},
        yaxis={"tickformat": ".0%", "range": [-0.03, 1.03]},
    )


def tasks(names: Sequence[str], lines: dict[str, list[dict]]) -> dict:
    """Share of right answers of every task with its 95% interval, a bar for each method."""
    data = []
    for series, (name, rows) in enumerate(lines.items()):
        look = {"error_y": _bounds(rows, CHANCE), "customdata": [_says(row) for row in rows]}
        scores, hover = [row["score"] for row in rows], f"{safe(name)}, %{{x}}<br>%{{customdata}}"
        data.append(bars(safe(name), names, scores, style(series)[0], hover, **look))
    data.append(_chance(names, next(iter(lines.values()))[0]["chance"]))
    yaxis = {"tickformat": ".0%", "range": [0, 1.03]}
    return figure(data, "task", "right answers", xaxis=NAMES, yaxis=yaxis, barmode="group")


def _chance(x: Sequence, level: float) -> dict:
    return line(f"chance ({level:.0%})", x, [level] * len(x), CHANCE, "dot", None)


def _bounds(rows: Sequence[dict], colour: str) -> dict:
    return error_bars(*([row[key] for row in rows] for key in ("score", "low", "high")), colour)
