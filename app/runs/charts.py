"""Figures of two runs on one scale."""

from analysis.runs.compare import Beside
from app.ui.charts import CHANCE, HERE, RANDOM, figure, line, safe

MOST_POINTS, MOST_BARS = 4_000, 48
FIRST, SECOND = "first run", "second run"


def labels(rows: Beside) -> list[str]:
    """What each shared row is called."""
    return [" · ".join(safe(part) for part in label) for label in rows.labels]


def along(rows: Beside) -> bool:
    """Whether the rows stand along one number, so that a line joins them."""
    return len(rows.keys) == 1 and all(isinstance(label[0], (int, float)) for label in rows.labels)


def both(rows: Beside, column: str) -> dict | None:
    """Both runs over what names their rows: lines along a number, else bars; None where the rows are too many."""
    x, y = rows.keys[0].replace("_", " ") if rows.keys else "row", column.replace("_", " ")
    step = thinned(rows)
    if along(rows) or not rows.keys:
        at = [label[0] for label in rows.labels][::step]
        few = len(at) <= MOST_BARS
        data = [
            line(FIRST, at, rows.first[::step], HERE, "solid", "circle" if few else None),
            line(SECOND, at, rows.second[::step], CHANCE, "dash", "square" if few else None),
        ]
        return figure(data, x, y)
    if len(rows.labels) > MOST_BARS:
        return None
    bars = ((FIRST, rows.first, HERE, ""), (SECOND, rows.second, CHANCE, "/"))
    data = [
        {
            "type": "bar", "name": name, "x": labels(rows), "y": values,
            "marker": {"color": colour, "pattern": {"shape": pattern, "size": 6, "solidity": 0.35}},
        }
        for name, values, colour, pattern in bars
    ]  # fmt: skip
    return figure(data, ", ".join(key.replace("_", " ") for key in rows.keys), y, xaxis={"type": "category"})


def against(rows: Beside, column: str) -> dict:
    """Every shared row at its value in the first and in the second run, both axes with the same range; on the dotted
    line they are equal."""
    step = thinned(rows)
    known = [value for value in rows.first + rows.second if value is not None]
    low, high = (min(known), max(known)) if known else (0, 1)
    room = (high - low) * 0.04 or 1
    span = [low - room, high + room]
    points = {
        "type": "scatter", "mode": "markers", "name": "a row",
        "x": rows.first[::step], "y": rows.second[::step], "text": labels(rows)[::step],
        "marker": {"color": HERE, "size": 7, "opacity": 0.7},
        "hovertemplate": "%{text}<br>first run %{x:.6g}, second run %{y:.6g}<extra></extra>",
    }  # fmt: skip
    equal = line("equal", span, span, RANDOM, "dot", None, hoverinfo="skip")
    name = column.replace("_", " ")
    return figure(
        [points, equal], f"{name}, first run", f"{name}, second run",
        xaxis={"range": span}, yaxis={"range": span},
    )  # fmt: skip


def thinned(rows: Beside) -> int:
    """Every how many rows one is drawn."""
    return max(1, -(-len(rows.labels) // MOST_POINTS))
