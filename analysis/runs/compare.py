"""Two stored runs held against each other: their configurations, their numbers, and any column of their tables."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from .run import Run

# Of the numbers: no result.
QUIET = ("protocol", "methods", "notes", "versions", "date")
# Of a table that is compared.
MOST_ROWS = 50_000
# Columns that name a row together, and columns that are tried for it.
MOST_KEYS, MOST_NAMES = 3, 8

Table = dict[str, list[Any]]  # column -> cells
# The cells that name a row.
Label = tuple[Any, ...]
# Verb -> the table and column that answer its question; of any other the first column with numbers.
MAIN = {
    "statistics": ("heads", "entropy"),
    "head": ("queries", "entropy"),
    "groups": ("groups", "share"),
    "pairs": ("pairs", "attention"),
    "start": ("pairs", "attention"),
    "temperature": ("heads", "entropy"),
    "evaluate": ("rows", "perplexity"),
    "equal-budget": ("rows", "attended"),
    "cap-sweep": ("rows", "difference"),
    "reads-text": ("rows", "difference"),
    "reads-sweep": ("rows", "difference"),
    "budgets": ("cells", "budget"),
    "calibrate": ("ranks", "rank"),
    "route": ("rows", "recall"),
    "route-at": ("means", "recall"),
    "probe": ("rows", "score"),
    "benchmark": ("rows", "value"),
    "launch": ("rows", "prefill_ms.median"),
    "time-method": ("rows", "prefill_ms.median"),
    "bench": ("rows", "speedup"),
    "worth": ("rows", "gain_bound"),
}


@dataclass(frozen=True)
class Beside:
    """One column of two runs, row by row. `keys`: the columns that name a row; `labels`: their values for each row,
    `first` and `second`: the numbers, None where a run has none; `only`: rows that only one of both has."""

    keys: list[str]
    labels: list[Label]
    first: list[Any]
    second: list[Any]
    only: int


def configuration(
    first: Run, second: Run, defaults: dict[str, dict[str, Any]] | None = None
) -> list[tuple[str, Any, Any]]:
    """(name, value, value) of every argument and fact of the protocol in which runs differ; None where one has none.

    `defaults`: method -> the value of each setting that a request does not name: naming it makes no difference."""
    differences: dict[str, tuple[Any, Any]] = {}
    for part in ("request", "protocol"):
        before, other = (_flat(_filled(getattr(run, part), defaults or {})) for run in (first, second))
        for name in before | other:
            if before.get(name) != other.get(name):
                differences.setdefault(name, (before.get(name), other.get(name)))
    return [(name, *values) for name, values in differences.items()]


def numbers(first: Run, second: Run) -> list[tuple[str, Any, Any]]:
    """(name, value, value) of every single number of two runs, in the order of the first one."""
    one, other = (
        {name: value for name, value in _flat(_results(run.numbers)).items() if _is_number(value)}
        for run in (first, second)
    )
    return [(name, one.get(name), other.get(name)) for name in one | other]


def tables(run: Run) -> list[str]:
    """Names of everything in a run that has rows: its tables, and its numbers that are lists of rows."""
    rows = [
        key
        for key, value in _results(run.numbers).items()
        if isinstance(value, list) and value and all(isinstance(row, dict) for row in value)
    ]
    return list(dict.fromkeys([*run.tables, *rows]))


def columns(run: Run, name: str) -> Table:
    """{column: list} of one of `tables`, at most MOST_ROWS rows."""
    if name in run.tables:
        return {column: cells[:MOST_ROWS] for column, cells in run.columns(name).items()}
    rows = [_flat(row) for row in run.numbers[name][:MOST_ROWS]]
    return {column: [row.get(column) for row in rows] for column in dict.fromkeys(key for row in rows for key in row)}


def measured(table: Table) -> list[str]:
    """Names of the columns with numbers to compare: those of fractions first, then whole numbers."""
    parts = [name for name, cells in table.items() if any(isinstance(cell, float) for cell in cells)]
    return parts + [
        name for name, cells in table.items() if name not in parts and cells and all(map(_is_number, cells))
    ]


def main(verb: str, tables: dict[str, list[str]]) -> tuple[str, str]:
    """The table and column on which a comparison opens; `tables`: name -> its columns with numbers, none empty."""
    table, name = MAIN.get(verb, ("", ""))
    if name in tables.get(table, ()):
        return table, name
    first = next(iter(tables))
    return first, tables[first][0]


def beside(first: Table, second: Table, column: str) -> Beside:
    """The numbers of one column of two tables, row by row. A row is named by the fewest columns of whole numbers,
    words and switches (at most MOST_KEYS) whose values are unique in both; of several, by those that most rows share.
    Without such columns the rows are matched in order."""
    sides = first, second
    # Fractions and what is nested name no row.
    names = [
        name
        for name in first
        if name in second and name != column
        if not any(isinstance(cell, (float, list, dict)) for cell in first[name] + second[name])
    ]
    keys, index, best = [], [{(place,): place for place in range(len(table[column]))} for table in sides], 0
    for size in range(1, MOST_KEYS + 1):
        for tried in combinations(names[:MOST_NAMES], size):
            places = [_places(table, tried) for table in sides]
            unique = all(len(labels) == len(table[column]) for labels, table in zip(places, sides, strict=True))
            shared = len(places[0].keys() & places[1].keys())
            if unique and shared > best:
                keys, index, best = list(tried), places, shared
        if 2 * best > min(map(len, index)):
            break
    labels = [label for label in index[0] if label in index[1]]
    one, other = (
        [table[column][places[label]] for label in labels] for table, places in zip(sides, index, strict=True)
    )
    return Beside(keys, labels, one, other, only=len(index[0]) + len(index[1]) - 2 * len(labels))


def _filled(value: Any, defaults: dict[str, dict[str, Any]]) -> Any:
    """A request with every setting of the methods that it names."""
    if isinstance(value, list):
        return [_filled(item, defaults) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("name") in defaults and isinstance(value.get("settings"), dict):
        return value | {"settings": defaults[value["name"]] | value["settings"]}
    return {key: _filled(item, defaults) for key, item in value.items()}


def _places(table: Table, keys: Iterable[str]) -> dict[Label, int]:
    return {label: i for i, label in enumerate(zip(*(table[key] for key in keys), strict=True))}


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    """Nested values as {path: plain value}; lists of plain values stay one value."""
    if isinstance(value, dict):
        flat: dict[str, Any] = {}
        for key, inner in value.items():
            flat |= _flat(inner, f"{name}.{key}" if name else key)
        return flat
    if isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
        return _flat({str(i): inner for i, inner in enumerate(value)}, name) if len(value) <= 12 else {}
    return {name: value}


def _results(numbers: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in numbers.items() if name not in QUIET}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
