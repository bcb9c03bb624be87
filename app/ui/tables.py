"""Tables of the pages, drawn by the browser from plain columns (Streamlit's own would load pandas into the app)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

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
    instead, while the column's own sort it; a `spare` column is left out where the table is narrow; `heads`: its
    values are names of heads."""

    title: str
    kind: str = "text"
    digits: int = 2
    help: str = ""
    full: float | None = None
    wrap: bool = False
    words: str = ""
    spare: bool = False
    heads: bool = False

    def show(self, value: Any) -> str:
        """The value as it stands in a cell, with a minus that is no hyphen; a missing one is a dash."""
        if value is None or value == "":
            return "–"
        if isinstance(value, bool):
            return "yes" if value else "no"
        if self.kind == "whole":
            return f"{int(value):,}"
        if self.kind == "number":
            return f"{value:,.{self.digits}f}".replace("-", "−")
        if self.kind == "share":
            return f"{value:.{max(self.digits - 2, 1)}%}".replace("-", "−")
        return str(value)

    def sent(self, values: Mapping[str, Sequence], name: str) -> dict:
        """What the browser gets of the column `name` of these values."""
        cells = list(values[name][:MAX_ROWS])
        words = list(values[self.words][:MAX_ROWS]) if self.words else [self.show(cell) for cell in cells]
        names = ("kind", "help", "full", "wrap", "spare", "heads")
        about = {"label": self.title} | {name: getattr(self, name) for name in names}
        return about | {"values": cells, "shown": words}


def table(
    columns: dict[str, Column],
    values: Mapping[str, Sequence],
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
    if st.session_state.get("classroom"):
        st.caption(f"{label}: the table is left out in classroom mode.")
        return
    total = len(next(iter(values.values()), ()))
    data = {
        "id": identity,
        "label": label,
        "columns": [column.sent(values, name) for name, column in columns.items()],
        "pick": on_row is not None,
        "release": release,
        "selected": selected,
        "height": height,
        "more": f"The first {MAX_ROWS:,} of {total:,} rows; the CSV holds all." if total > MAX_ROWS else "",
    }
    _TABLE(key=key, data=data, on_row_change=on_row or (lambda: None))


def spread(value: float | None, low: float | None, high: float | None, spec: str = ".0%") -> str:
    """A value with its interval, where it has one: `25% (22% to 28%)`."""
    if value is None:
        return "–"
    ends = "" if low is None or high is None else f" ({low:{spec}} to {high:{spec}})"
    return f"{value:{spec}}{ends}".replace("-", "−")


def guess(name: str, cells: list) -> Column:
    """How a column is shown when nothing more is known of it."""
    defined, kind = [cell for cell in cells if cell is not None], "text"
    if defined and not any(isinstance(cell, (str, bool)) for cell in defined):
        kind = "whole" if all(cell == int(cell) for cell in defined) else "number"
    return Column(name.replace("_", " "), kind, digits=4)
