"""Tables of the pages, drawn by the browser from plain columns (Streamlit's own would load pandas into the app)."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from app.ui import classroom
from app.ui.painted import part

MAX_ROWS = 1000

_TABLE = part(
    "table",
    """<div class="table"><div class="frame" tabindex="0" role="region"><table><thead></thead><tbody></tbody></table>
    <div class="more" hidden></div></div></div>""",
)


@dataclass(frozen=True)
class Column:
    """One column: its title, `kind` (`text`, `token`, `whole`, `number`, `share`), digits, tooltip; `full` draws a bar
    behind the number, full at that value; `wrap` lets long text break; `words` names the values that stand in the cells
    instead, while the column's own sort it."""

    title: str
    kind: str = "text"
    digits: int = 2
    help: str = ""
    full: float | None = None
    wrap: bool = False
    words: str = ""

    def show(self, value: object) -> str:
        """The value as it stands in a cell; a missing one is a dash."""
        if value is None or value == "":
            return "–"
        if isinstance(value, bool):
            return "yes" if value else "no"
        if self.kind == "whole":
            return f"{int(value):,}"
        if self.kind == "number":
            return f"{value:,.{self.digits}f}"
        if self.kind == "share":
            return f"{value:.{max(self.digits - 2, 0)}%}" if self.digits > 2 else f"{value:.1%}"
        return str(value)


def table(
    columns: dict[str, Column],
    values: dict[str, Sequence],
    *,
    key: str,
    identity: str,
    label: str,
    selected: int | None = None,
    on_row: Callable | None = None,
    release: bool = False,
    height: int = 470,
) -> None:
    """Show some columns of a table; with `on_row`, a click or the arrow keys lock a row, stored under `key` as `row`.

    `release`: a second click lets the row go (-1). Only the first 1,000 rows go to the browser, and the table says so.
    """
    if classroom.on():
        st.caption(f"{label}: the table is left out in classroom mode.")
        return
    total = len(next(iter(values.values()), ()))
    data = {
        "id": identity,
        "label": label,
        "columns": [
            {
                "label": column.title,
                "kind": column.kind,
                "help": column.help,
                "full": column.full,
                "wrap": column.wrap,
                "values": list(values[name][:MAX_ROWS]),
                "shown": list(values[column.words][:MAX_ROWS])
                if column.words
                else [column.show(value) for value in values[name][:MAX_ROWS]],
            }
            for name, column in columns.items()
        ],
        "pick": on_row is not None,
        "release": release,
        "selected": selected,
        "height": height,
        "more": f"The first {MAX_ROWS:,} of {total:,} rows; the CSV holds all." if total > MAX_ROWS else "",
    }
    _TABLE(key=key, data=data, on_row_change=on_row or (lambda: None))


def to_csv(values: dict[str, Sequence], stamp: Mapping[str, str] | None = None) -> bytes:
    """A table as CSV in UTF-8 with a byte order mark, so that a spreadsheet reads it.

    `stamp`: where it comes from, as lines that begin with # and that pandas leaves out with comment="#"; a cell that
    holds a # is quoted. A text cell that a spreadsheet would run as a formula is put in front of an apostrophe.
    """
    lines = [f"# {name}: {_comment(value)}" for name, value in (stamp or {}).items()]
    rows = [",".join(_cell(cell) for cell in row) for row in (list(values), *zip(*values.values(), strict=True))]
    return "".join(f"{line}\r\n" for line in [*lines, *rows]).encode("utf-8-sig")


def _comment(value: str) -> str:
    """One line in which no field of a spreadsheet begins with what would be run as a formula."""
    return re.sub(r"([,;|])(\s*)(?=[=+\-@])", r"\1\2'", " ".join(value.split()).replace('"', "'"))


def _cell(cell: object) -> str:
    if isinstance(cell, str) and cell[:1] in "=+-@\t\r" and cell.strip():
        cell = f"'{cell}"
    written = "" if cell is None else str(cell)
    return '"' + written.replace('"', '""') + '"' if re.search(r'[",#\r\n]', written) else written
