"""How a study says what is drawn of it: columns of its rows, and panels of small multiples, as plain data.

What these functions give is stored as JSON; `analysis.runs.stored` declares the fields and reads them back.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from ...papers import find
from ...runs.stored import Column, Panel, Series

Row = Mapping[str, Any]
# A Series as plain data.
Line = dict[str, Any]


def column(name: str, label: str, unit: str = "") -> dict[str, str]:
    """A column of the rows."""
    return asdict(Column(name, label, unit))


def columns(study: str) -> list[dict[str, str]]:
    """The columns of a study's rows that never change."""
    return _of("columns.csv", study)


def presented(study: str, sentence: str, panels: list[dict] | None, *notes: str) -> dict[str, Any]:
    """What is shown of a study, its notes that never change before these."""
    shown: dict[str, Any] = {"sentence": sentence, "columns": columns(study), "panels": panels}
    shown["notes"] = [*(row["note"] for row in _of("notes.csv", study)), *notes] or None
    return {name: value for name, value in shown.items() if value is not None}


def of_row(shown: dict[str, Any], row: Row) -> dict[str, Any]:
    """What is shown, with the columns that this row has."""
    return shown | {"columns": [column for column in shown["columns"] if column["name"] in row]}


@cache
def _of(file: str, study: str) -> list[dict[str, str]]:
    """The rows of a study in a table beside this file."""
    with open(Path(__file__).with_name(file), encoding="utf-8", newline="") as lines:
        return [row for row in csv.DictReader(lines) if row.pop("study") == study]


def series(
    name: str, y: Sequence, low: Sequence | None = None, high: Sequence | None = None, paper: bool = False
) -> Line:
    """One line of a panel."""
    lows, highs = (None if ends is None else list(ends) for ends in (low, high))
    return asdict(Series(name, list(y), lows, highs, paper))


def of_rows(name: str, rows: Sequence[Row], key: str) -> Line:
    """The series of a key of the rows, with its interval where they have `KEY_low` and `KEY_high`."""
    low, high = ([row.get(f"{key}_{edge}") for row in rows] for edge in ("low", "high"))
    known = any(edge is not None for edge in (*low, *high))
    return series(name, [row.get(key) for row in rows], low if known else None, high if known else None)


def panel(
    title: str, x: str, x_label: str, x_values: Sequence, y_label: str, lines: Sequence[Line], share: bool = False
) -> dict[str, Any]:
    """One small chart: the lines over `x_values`, the values of column `x`. Errors: an assert for unequal lengths."""
    assert all(len(line["y"]) == len(x_values) for line in lines), title
    drawn = asdict(Panel(title, x, x_label, list(x_values), y_label, [Series(**line) for line in lines], share))
    # Files that were stored before `share` and `up` do without them, and so do panels that need neither.
    return {name: value for name, value in drawn.items() if name not in ("share", "up", "x_low", "x_high") or value}


def chart(
    title: str,
    rows: Sequence[Row],
    x: str,
    x_label: str,
    y_label: str,
    keys: Mapping[str, str],
    more: Sequence[Line] = (),
) -> dict[str, Any]:
    """A panel over column `x` of the rows: a line for each name -> key of a row, and `more` lines."""
    lines = [of_rows(name, rows, key) for name, key in keys.items()]
    return panel(title, x, x_label, [row[x] for row in rows], y_label, [*lines, *more])


def paper_lines(lines: Mapping[str, Sequence]) -> list[Line]:
    """The series name -> values that a paper prints, without those of which it prints nothing."""
    return [series(name, y, paper=True) for name, y in lines.items() if any(value is not None for value in y)]


def printed(table: str, row: str, name: str) -> float | None:
    """A number that the Focus paper prints, or None where it prints none."""
    cells = find("focus", table, row, name)
    return cells[0].value if cells and isinstance(cells[0].value, float) else None
