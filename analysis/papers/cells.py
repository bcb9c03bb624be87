"""One printed number with what it was measured on, and the file that holds a paper's."""

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..errors import BadSetting

FIELDS = ["paper", "table", "row", "column", "value", "unit", "protocol", "note"]
KINDS = (
    "impossible",
    "damaged",
    "duplicated",
    "not reconciled",
    "contradicts",
    "contradicts its paper",
    "formula",
    "caution",
    "read",
)


@dataclass(frozen=True)
class Cell:
    """One cell of a paper's table, a point of its figures, or a measurement that its text prints.

    `value`: float where the paper prints a number, else its text; `unit`: `%` as printed, `x` times as fast, `ppl`
    perplexity, `K M B` thousands to billions, may be empty. `note`: empty, or what is doubtful, each part led by its
    kind (`KINDS`) and parted by "; ". `read` alone says how a cell that the scan garbled was read, `damaged`
    that it cannot be; the rest are doubts about the paper.
    """

    paper: str
    table: str
    row: str
    column: str
    value: float | str
    unit: str
    protocol: str
    note: str


def parse(paper: str, lines: Iterable[str]) -> list[Cell]:
    """The cells of a paper's CSV file, in its order. Raises BadSetting for a file that is damaged in any line."""
    reader, cells, seen = csv.reader(lines, strict=True), [], set()
    try:
        header = next(reader, [])
        if header != FIELDS:
            raise ValueError(f"the columns are {header}")
        for fields in reader:
            cell = _cell(paper, fields)
            if (cell.table, cell.row, cell.column) in seen:
                raise ValueError(f"{cell.table}, {cell.row}, {cell.column} stands there twice")
            seen.add((cell.table, cell.row, cell.column))
            cells.append(cell)
    except (csv.Error, ValueError) as error:
        raise BadSetting(
            f"The numbers of the paper {paper!r} cannot be read, line {reader.line_num}: {error}; restore its CSV file."
        ) from error
    return cells


def _cell(paper: str, fields: list[str]) -> Cell:
    if len(fields) != len(FIELDS):
        raise ValueError(f"{len(fields)} fields instead of {len(FIELDS)}")
    cell = Cell(*fields)
    if cell.paper != paper or any(text != text.strip() for text in fields):
        raise ValueError("the paper is another one, or a field starts or ends with a blank")
    if not all((cell.table, cell.row, cell.column, cell.value, cell.protocol)):
        raise ValueError("only the unit and the note may be empty")
    if cell.note and not all(part.startswith(tuple(f"{kind}: " for kind in KINDS)) for part in cell.note.split("; ")):
        raise ValueError(f"the note says none of {', '.join(KINDS)}")
    is_number = re.fullmatch(r"-?\d+(\.\d+)?", str(cell.value))
    return replace(cell, value=float(cell.value)) if is_number else cell
