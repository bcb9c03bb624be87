"""A chart or a table on a page with the numbers behind it, and what the charts of several pages share: rows as columns,
how a line looks, error bars, notes and axes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from app import cached
from app.ui import tables, widgets
from app.ui.charts import CHANCE, HERE, error_bars, figure, level, line

DASHES = ("solid", "dash", "dot", "dashdot")
# An axis of changes of perplexity.
CHANGE = {"tickformat": "+.1~%", "labelalias": {"+0%": "0%"}}
# A slider redraws without an animation.
AT_ONCE = {"transition": {"duration": 0}}
SHARE_OF_1 = {"tickformat": ".0%", "range": [0, 1.02]}

# Columns by name, or rows.
Table = Mapping[str, Sequence] | Sequence[Mapping[str, Any]]


class Look(NamedTuple):
    """How a line looks: its dash and its marks say the same as its colour."""

    colour: str = HERE
    dash: str = "solid"
    symbol: str | None = "circle"


PLAIN = Look()


def columns(table: Table, *names: str) -> dict[str, Sequence]:
    """The columns of these names; without names all that hold no lists or records. A value that a row lacks is None."""
    if isinstance(table, Mapping):
        return {name: table[name] for name in names or table}
    first = table[0] if table else {}
    wanted = names or [name for name, cell in first.items() if not isinstance(cell, (list, dict))]
    return {name: [row.get(name) for row in table] for name in wanted}


def bounds(table: Table, key: str, ends: tuple[str, str], colour: str) -> dict:
    """plotly's error bars of a column, from the columns of its `ends`."""
    middle, low, high = columns(table, key, *ends).values()
    return error_bars(middle, low, high, colour)


def interval(key: str) -> tuple[str, str]:
    """The columns that hold the ends of an interval: KEY_low and KEY_high."""
    return f"{key}_low", f"{key}_high"


def curve(
    name: str,
    table: Table,
    x: str,
    y: str,
    look: Look = PLAIN,
    hover: str | None = None,
    ends: tuple[str, str] | None = None,
    **details: Any,
) -> dict:
    """The line of column `y` over column `x`, with error bars between the columns `ends`."""
    if ends:
        details["error_y"] = bounds(table, y, ends, look.colour)
    across, up = columns(table, x, y).values()
    return line(name, across, up, *look, hover, **details)


def against_dense(data: list[dict], x: str, tolerated: float | None = None, **layout: Any) -> dict:
    """A figure whose upward axis is perplexity against dense attention, better up; with a line at the loss that is
    `tolerated`."""
    lines = [level(0.0)] + ([] if tolerated is None else [level(tolerated, CHANCE)])
    layout["shapes"] = [*lines, *layout.get("shapes", ())]
    look: dict[str, Any] = {"height": 400, "margin": {"l": 76, "r": 48, "t": 24, "b": 120}} | layout
    look["yaxis"] = {**CHANGE, "autorange": "reversed", **look.get("yaxis", {})}
    return figure(data, x, "perplexity against dense, better upwards", **look)


def note(text: str, x: float, y: float = 1.0, colour: str | None = None, **place: Any) -> dict:
    """Words at a place of the plot, above it unless `place` says otherwise."""
    font = {"size": 12} | ({"color": colour} if colour else {})
    usual = {"yref": "paper", "yanchor": "bottom", "xanchor": "left", "showarrow": False, "font": font}
    return {"text": text, "x": x, "y": y} | usual | place


def draw(
    drawn: dict, numbers: Table | Callable[[], dict], title: str, key: str, term: str = "", select: str | None = None
) -> Any:
    """A titled chart with its numbers; `term` of the glossary explains it. Returns what is selected, as
    `widgets.chart`."""
    x, y = (drawn["layout"][axis]["title"]["text"] for axis in ("xaxis", "yaxis"))
    return widgets.chart(
        drawn,
        numbers if callable(numbers) else columns(numbers),
        title=title,
        key=key,
        alt=f"{title}: {y or 'each'} by {x}",
        help=cached.glossary(term) if term else None,
        select=select,
    )


def listed(
    about: dict[str, tables.Column], table: Table, key: str, label: str, identity: str = "", **look: Any
) -> None:
    """A table with its menu; `about` are the columns that are shown."""
    words = {column.words for column in about.values()}
    values = table if isinstance(table, Mapping) else columns(table, *about, *(words - {""}))
    numbers = {name: cells for name, cells in values.items() if name not in words}
    widgets.numbers(numbers, key.replace("_", "-"), f"{key}_numbers", label)
    tables.table(about, values, key=key, identity=identity or key, label=label, **look)
