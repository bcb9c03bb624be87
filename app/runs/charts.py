"""Figures of two runs on one scale."""

from analysis.runs.compare import Beside
from app.runs import words
from app.ui.charts import CHANCE, HERE, NAMES, RANDOM, bars, figure, line, marks, safe

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
    x, y = words.column(rows.keys[0]) if rows.keys else "row", words.column(column)
    step = thinned(rows)
    if along(rows) or not rows.keys:
        positions = [label[0] for label in rows.labels][::step]
        few = len(positions) <= MOST_BARS
        data = [
            line(FIRST, positions, rows.first[::step], HERE, "solid", "circle" if few else None, hoverinfo="all"),
            line(SECOND, positions, rows.second[::step], CHANCE, "dash", "square" if few else None, hoverinfo="all"),
        ]
        return figure(data, x, y)
    if len(rows.labels) > MOST_BARS:
        return None
    data = [
        bars(FIRST, labels(rows), rows.first, HERE, None, hoverinfo="all"),
        bars(SECOND, labels(rows), rows.second, CHANCE, None, "/", hoverinfo="all"),
    ]
    return figure(data, ", ".join(map(words.column, rows.keys)), y, xaxis=NAMES)


def against(rows: Beside, column: str) -> dict:
    """Every shared row at its value in the first and in the second run, both axes with the same range; on the dotted
    line they are equal."""
    step = thinned(rows)
    numbers = [value for value in rows.first + rows.second if value is not None]
    low, high = (min(numbers), max(numbers)) if numbers else (0, 1)
    room = (high - low) * 0.04 or 1
    span = [low - room, high + room]
    x, y, names = rows.first[::step], rows.second[::step], labels(rows)[::step]
    look, hover = {"color": HERE, "size": 7, "opacity": 0.7}, "%{text}<br>first run %{x:.6g}, second run %{y:.6g}"
    data = [marks("a row", x, y, hover, look, text=names), line("equal", span, span, RANDOM, "dot", None)]
    name, axis = words.column(column), {"range": span}
    return figure(data, f"{name}, first run", f"{name}, second run", xaxis=axis, yaxis=axis)


def thinned(rows: Beside) -> int:
    """Every how many rows one is drawn."""
    return max(1, -(-len(rows.labels) // MOST_POINTS))
