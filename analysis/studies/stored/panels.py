"""How a study says what is drawn of it: columns of its rows, and panels of small multiples, as plain data."""

import csv
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from analysis.papers import find


def column(name: str, label: str, unit: str = "") -> dict:
    """A column of the rows: its key, what a reader calls it, its unit."""
    return {"name": name, "label": label, "unit": unit}


def columns(study: str) -> list[dict]:
    """The columns of a study's rows."""
    return _of("columns.csv", study)


def presented(study: str, sentence: str, panels: list[dict] | None, *notes: str) -> dict:
    """What is shown of a study: its `sentence columns panels notes`, its own notes before these."""
    said = [*(row["note"] for row in _of("notes.csv", study)), *notes]
    found = {"sentence": sentence, "columns": columns(study), "panels": panels, "notes": said or None}
    return {name: value for name, value in found.items() if value is not None}


@cache
def _of(file: str, study: str) -> list[dict]:
    """The rows of a study in a table beside this file."""
    with open(Path(__file__).with_name(file), encoding="utf-8", newline="") as lines:
        return [row for row in csv.DictReader(lines) if row.pop("study") == study]


def series(
    name: str, y: Sequence, low: Sequence | None = None, high: Sequence | None = None, paper: bool = False
) -> dict:
    """One line of a panel, as long as its x values; `low` and `high` its 95% interval, `paper` for printed numbers."""
    return {"name": name, "y": list(y), "low": low and list(low), "high": high and list(high), "paper": paper}


def of_rows(name: str, rows: Sequence[dict], key: str) -> dict:
    """The series of a key of the rows, with its interval where they have `KEY_low` and `KEY_high`."""
    low, high = ([row.get(f"{key}_{edge}") for row in rows] for edge in ("low", "high"))
    known = any(edge is not None for edge in (*low, *high))
    return series(name, [row.get(key) for row in rows], low if known else None, high if known else None)


def panel(
    title: str, x: str, x_label: str, x_values: Sequence, y_label: str, lines: Sequence[dict], share: bool = False
) -> dict:
    """One small chart: the lines over `x_values`, the values of column `x`; `share`: they are read as per cent. Errors:
    an assert for unequal lengths."""
    assert all(len(line["y"]) == len(x_values) for line in lines), title
    return {
        **{"title": title, "x": x, "x_label": x_label, "x_values": list(x_values), "y_label": y_label},
        "series": list(lines),
    } | ({"share": True} if share else {})


def chart(
    title: str, rows: Sequence[dict], x: str, x_label: str, y_label: str, keys: dict[str, str], more: Sequence = ()
) -> dict:
    """A panel over column `x` of the rows: a line for each name -> key of a row, and `more` lines."""
    lines = [of_rows(name, rows, key) for name, key in keys.items()]
    return panel(title, x, x_label, [row[x] for row in rows], y_label, [*lines, *more])


def paper_lines(lines: dict[str, Sequence]) -> list[dict]:
    """The series name -> values that a paper prints, without those of which it prints nothing."""
    return [series(name, y, paper=True) for name, y in lines.items() if any(value is not None for value in y)]


def printed(table: str, row: str, name: str) -> float | None:
    """A number that the Focus paper prints, or None where it prints none."""
    cells = find("focus", table, row, name)
    return cells[0].value if cells and isinstance(cells[0].value, float) else None
