"""Figures of the long-context tests: maps of right answers, scores by length and by task, chance always drawn."""

from collections.abc import Sequence

from analysis.claims import signed
from app.ui.charts import CHANCE, NAMES, bars, figure, line, safe, style
from app.ui.head_map import SCALE
from app.ui.plots import Look, bounds, curve, interval

AXES = {"depth": "depth of the answer", "examples": "examples", None: ""}
# Marks a cell that is above chance by itself.
SURE = "*"
# Share of right answers from which the colour behind a number is light.
DARK = 0.62
ENDS = ("low", "high")


def grid(rows: Sequence[dict], axis: str | None) -> dict:
    """Share of right answers, depth (or examples) x length, of one method; one fixed scale, 0 to 100%. A cell whose
    interval lies above chance is marked."""
    lengths = sorted({row["length"] for row in rows})
    places = sorted({row[axis] for row in rows}, reverse=axis == "examples") if axis else [None]
    by_place = {(row[axis] if axis else None, row["length"]): row for row in rows}
    cells = [[by_place.get((place, length)) for length in lengths] for place in places]
    names = [f"{place:.0%}" if axis == "depth" else f"{place:,}" if axis else "" for place in places]
    chance = rows[0]["chance"]
    bar = {"thickness": 12, "title": {"text": "right answers", "side": "right"}}
    bar |= {"tickvals": [0, chance, 0.5, 1], "ticktext": ["0%", f"chance {chance:.0%}", "50%", "100%"]}
    # plotly reads names that are numbers as places.
    across, down = list(range(len(lengths))), list(range(len(places)))
    trace = {
        "type": "heatmap",
        **{"x": across, "y": down, "z": [[cell and cell["score"] for cell in row] for row in cells]},
        **{"zmin": 0, "zmax": 1, "colorscale": SCALE, "colorbar": bar, "xgap": 2, "ygap": 2, "hoverongaps": False},
        "customdata": [[_says(cell) for cell in row] for row in cells],
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    annotations = []
    for (place, length), cell in by_place.items():
        sure = f" {SURE}" if cell["low"] > cell["chance"] else ""
        font = {"color": "#1A1A1A" if cell["score"] > DARK else "#FFFFFF", "size": 13}
        look = {"text": f"{cell['score']:.0%}{sure}", "showarrow": False, "font": font}
        annotations.append({"x": lengths.index(length), "y": places.index(place), **look})
    ticks = {"showgrid": False, "tickvals": down, "ticktext": names, "autorange": "reversed"}
    return figure(
        [trace],
        "prompt, tokens",
        AXES[axis],
        height=max(240, 46 * len(places) + 120),
        margin={"l": 70, "r": 16, "t": 20, "b": 56},
        xaxis={"showgrid": False, "tickvals": across, "ticktext": [f"{length:,}" for length in lengths]},
        yaxis=ticks,
        annotations=annotations,
    )


def _says(cell: dict | None) -> str:
    if cell is None:
        return ""
    words = f"{cell['score']:.0%} right ({cell['low']:.0%} to {cell['high']:.0%}), n = {cell['n']:,}"
    if cell["difference"] is not None:
        words += f"<br>{signed(100 * cell['difference'], '.0f')} points against dense"
    cut = f"<br>{cell['truncated']:,} prompts cut, the answer in {cell['lost']:,}" if cell["truncated"] else ""
    return words + cut


def by_length(lines: dict[str, list[dict]], chance: float) -> dict:
    """Share of right answers against the length, a line for each method with its 95% interval, over all places."""
    data = []
    for series, (name, rows) in enumerate(lines.items()):
        colour, symbol = style(series)
        look = Look(colour, "dash" if series else "solid", symbol)
        hover = f"{safe(name)}: %{{y:.0%}} at %{{x:,}} tokens"
        data.append(curve(safe(name), rows, "length", "score", look, hover, ENDS))
    lengths = sorted({row["length"] for rows in lines.values() for row in rows})
    data.append(_chance(lengths, chance))
    axis = {"type": "log", "tickvals": lengths, "ticktext": [f"{length:,}" for length in lengths]}
    share = {"tickformat": ".0%", "range": [-0.03, 1.03]}
    return figure(data, "prompt, tokens", "right answers", xaxis=axis, yaxis=share)


def tasks(names: Sequence[str], lines: dict[str, list[dict]], key: str = "score") -> dict:
    """Share of right answers of every task with its 95% interval, a bar for each method; with `key` "written" of those
    that were written, where there is no chance level."""
    data = []
    for series, (name, rows) in enumerate(lines.items()):
        scores, hover = [row[key] for row in rows], f"{safe(name)}, %{{x}}<br>%{{customdata}}"
        says = [
            _says(row)
            if key == "score"
            else f"{row['written']:.0%} ({row['written_low']:.0%} to {row['written_high']:.0%}), n = {row['n']:,}"
            for row in rows
        ]
        error = bounds(rows, key, ENDS if key == "score" else interval(key), CHANCE)
        data.append(bars(safe(name), names, scores, style(series)[0], hover, error_y=error, customdata=says))
    if key == "score":
        data.append(_chance(names, next(iter(lines.values()))[0]["chance"]))
    yaxis = {"tickformat": ".0%", "range": [0, 1.03]}
    return figure(data, "task", "right answers", xaxis=NAMES, yaxis=yaxis, barmode="group")


def _chance(x: Sequence, level: float) -> dict:
    return line(f"chance ({level:.0%})", x, [level] * len(x), CHANCE, "dot", None)
