"""Stored studies on a page: what was found, as the study itself describes it, how it was made, or how to make it."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import streamlit as st

from analysis.commands import commandline
from analysis.commands.training import Study
from analysis.runs.conclusions import changed
from analysis.runs.stored import Panel, Series, StoredStudy
from analysis.studies.registry import LAB
from app import cached
from app.ui import asking, jobs, tables, widgets
from app.ui.charts import ASIDE, GROUPS, NAMES, RANDOM, SYMBOLS, error_bars, figure, line, safe

EARLIER = "The model was trained on or replaced since: what is said here was true of its earlier weights."
OTHERWISE = "The study measures otherwise by now: these numbers wait to be measured again."
# Of a study that a button runs on the bundled texts.
LENGTH, WINDOWS = 256, 8
# X values that are named one by one.
MOST_TICKS = 12
# Of the axis, between two names.
ROOM = 1 / 25


def study(name: str, model: str = "") -> StoredStudy | None:
    """The stored study of this name for the `model`, the one in use if not given, or None; a damaged file is
    reported."""
    stored, damage = asking.study(model or st.session_state["model"], name)
    if damage:
        widgets.prose(damage, "note")
    return stored


def missing(title: str, name: str, small: bool | dict = False, reads: bool = True, **chosen: object) -> None:
    """Say that the study `name` has not been run for this model, and which command runs it; `chosen`: its arguments.
    `small`: it trains little and needs no texts of its own, so a button runs it on a little of the bundled ones, with
    these sizes of its own where there are any; `reads`: it reads a folder of texts."""
    model = st.session_state["model"]
    st.info(f"{widgets.plain(title)}: not measured on this machine yet for the model {widgets.plain(model)}.")
    if not LAB.is_dir():
        widgets.prose("A checkout of Focuscope's repository measures stored studies; this package shows them.", "quiet")
        return
    if small:
        length = min(LENGTH, asking.card(model)["max_positions"])
        size = {"corpus": cached.corpus(), "windows": WINDOWS, "length": length}
        size |= small if isinstance(small, dict) else {}
        request = Study.from_arguments({"name": name, "model": model, **chosen, **size})
        jobs.run_button("Measure it small, on the bundled texts", request, f"small_{name}", WINDOWS * length)
        caveat = f"{WINDOWS} windows of {length} tokens show which way the numbers go; their intervals are wide."
        widgets.prose(caveat, "quiet")
    widgets.prose("This command measures and stores all of it, and continues where it was stopped:", "quiet")
    folder = {"corpus": "DIR"} if reads else {}
    command = commandline("study", {"name": name, **folder, **chosen, "model": model})
    st.code(command, language=None, wrap_lines=True)


def opened(
    name: str, title: str, small: bool | dict = False, reads: bool = True, of: str = "", **chosen: object
) -> StoredStudy | None:
    """The stored study `name` with its sentence and what it was measured on; None where it is `missing`, which is
    said. `of`: the model that it is stored beside, where that is not the one in use."""
    stored = study(name, of)
    if stored is None:
        missing(title, name, small, reads, **chosen)
        return None
    told(name, stored)
    return stored


def section(
    name: str,
    heading: str,
    term: str = "",
    rows: bool = True,
    more: Callable[[StoredStudy], None] | None = None,
    **asked: Any,
) -> None:
    """All of the stored study `name` under its `heading`, explained by a `term` of the glossary, or how to make it.
    `rows`: all of them in a table too; `more` draws what stands above the panels; `asked` is for `opened`."""
    help = cached.glossary(term) if term else None
    st.header(heading, anchor=False, help=help)
    stored = opened(name, heading.removesuffix("?"), **asked)
    if stored is not None:
        if more is not None:
            more(stored)
        drawn(stored, f"study_{name}", help, name if rows else "")


def told(name: str, stored: StoredStudy) -> None:
    """What the stored study `name` says, which of its headlines came out otherwise on the first bundled model, and what
    it was measured on."""
    widgets.prose(stored.sentence, "more")
    if st.session_state["model"] == "demo":
        widgets.prose(changed(name, stored.numbers), "note")
    badge(stored)


def badge(stored: StoredStudy) -> None:
    """That these numbers were measured before, when, and on what."""
    about = stored.protocol
    near = about.sizes.get("window")
    read = f" read with a window of {near:,} tokens" if near else ""
    facts = [
        about.corpus,
        about.steps and f"{about.steps:,} steps",
        about.window and f"windows of {about.window:,} tokens",
        f"model {about.model}",
        about.router and f"router {about.router}{read}",
        about.units and f"units: {about.units:,} {about.unit}",
    ]
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        date = f", {about.date[:10]}" if about.date else ""
        st.badge(f"stored study{date}", icon=":material/inventory_2:", color="gray")
        if about.other_weights(asking.card(st.session_state["model"])["revision"]):
            st.badge("earlier weights", icon=":material/history:", color="orange", help=EARLIER)
        if about.other_version:
            st.badge("earlier version", icon=":material/history:", color="orange", help=OTHERWISE)
        widgets.prose(" · ".join(fact for fact in facts if fact), "quiet")


def made(stored: StoredStudy) -> None:
    """The command that makes a study again, and its protocol."""
    about = stored.protocol
    with st.expander("The command, and how it was made", icon=":material/terminal:"):
        if about.command:
            st.code(about.command, language=None, wrap_lines=True)
        facts = {name: getattr(about, name) for name in ("revision", "seed", "dtype", "device", "kernel")}
        facts |= about.versions | {"date": about.date}
        widgets.prose(" · ".join(f"{name} {value}" for name, value in facts.items() if value), "quiet")


def drawn(stored: StoredStudy, key: str, help: str | None = None, name: str = "") -> None:
    """What stands under the sentence of a stored study: its panels, its rows where it has a `name` to keep them by, its
    notes, and how it was made. `key` begins the keys of all that is drawn."""
    if stored.panels:
        with st.grid(2, min_column_width=380, gap="large"):
            for place, panel in enumerate(stored.panels):
                with st.container(), widgets.guarded():
                    _draw(panel, stored, f"{key}_{place}", help)
        if any(series.paper for panel in stored.panels for series in panel.series):
            st.caption("Dashed, open marks: printed in the paper, on another model and other text; never one scale.")
    if name:
        rows(name, stored, key)
    widgets.prose(stored.notes, "quiet")
    made(stored)


def one(stored: StoredStudy, title: str, key: str, help: str | None = None) -> None:
    """The panel of this title, large, in the colours that its series have in the small ones."""
    panel = next(panel for panel in stored.panels if panel.title == title)
    _draw(panel, stored, key, help, large=True)


def _draw(panel: Panel, stored: StoredStudy, key: str, help: str | None, large: bool = False) -> None:
    # A series keeps its colour from panel to panel, so every panel is drawn with the names of all.
    names = list(dict.fromkeys(series.name for panel in stored.panels for series in panel.series))
    alt, drawn = f"{panel.y_label} against {panel.x_label}", panel_figure(panel, names, large)
    widgets.chart(drawn, _values(panel), title=panel.title, key=key, alt=alt, help=help)


def rows(name: str, stored: StoredStudy, key: str) -> None:
    """The rows of a study under its columns' labels. `key` begins the keys of table and download."""
    st.subheader("All rows", anchor=False, help=cached.glossary("protocol"))
    values = {about.name: [row.get(about.name) for row in stored.rows] for about in stored.columns}
    columns = {}
    for about in stored.columns:
        cells, unit = values[about.name], f", {about.unit}" if about.unit else ""
        kind = tables.guess(about.name, cells).kind
        columns[about.name] = tables.Column(f"{about.label}{unit}", kind, digits=digits(cells))
    widgets.numbers(values, name, f"{key}_numbers")
    tables.table(columns, values, key=f"{key}_rows", identity=name, label="Rows of the study")


def digits(numbers: Sequence) -> int:
    """After the point, so many that the smallest number shows two digits of its own; 3 to 6."""
    sizes = [abs(number) for number in numbers if isinstance(number, float) and number and math.isfinite(number)]
    return min(6, max(3, 1 - math.floor(math.log10(min(sizes))))) if sizes else 3


def panel_figure(about: Panel, names: list[str], large: bool = False) -> dict[str, Any]:
    """The figure of a panel. Values of x that are words, or far apart, stand at equal steps, and marks over words
    alone, which have no order, are not joined; a long curve has no marks. What a paper prints is dashed with open
    marks. `names`: every series of the study, so that one keeps its colour from panel to panel. `large`: by itself,
    with its legend aside."""
    x = about.x_values
    words = [value for value in x if isinstance(value, str)]
    curve = not words and len(x) > MOST_TICKS
    axis: dict[str, Any] = dict(NAMES) if words else {}
    if not words and not curve:
        evenly = len({b - a for a, b in pairwise(x)}) == 1
        logarithmic = not evenly and len(x) > 2 and min(x) > 0 and max(x) / min(x) >= 8
        ticks = _apart(x, logarithmic)
        axis = {"type": "log"} if logarithmic else {}
        axis |= {"tickvals": ticks, "ticktext": [f"{t:,}" if isinstance(t, int) else f"{t:g}" for t in ticks]}
    mode = "lines" if curve else "lines+markers"
    if len(words) == len(x):
        mode = "markers"
    shown = [str(value) for value in x] if words else x
    data = [_trace(about, series, shown, names.index(series.name), mode) for series in about.series]
    rising = {"tickformat": ".1~%"} if about.share else {}
    rising |= {"autorange": "reversed"} if about.up == "low" else {}
    shape = {"height": 520, **ASIDE} if large else {"height": 330}
    return figure(data, about.x_label, about.y_label, xaxis=axis, yaxis=rising, **shape)


def _trace(about: Panel, series: Series, x: Sequence, place: int, mode: str) -> dict[str, Any]:
    """One line of the figure; `place` among all series of the study decides how it looks."""
    # Once the colours are used up, another mark and line.
    again = place // len(GROUPS)
    symbol = SYMBOLS[(place + again) % len(SYMBOLS)]
    name, colour, dash = series.name, GROUPS[place % len(GROUPS)], "dot" if again else "solid"
    if series.paper:
        name = name if "paper" in name else f"{name}, paper"
        colour, dash, symbol = RANDOM, "dash", f"{symbol}-open"
    number = "%{y:.2%}" if about.share else "%{y:.4g}"
    hover = f"{safe(name)}<br>{safe(about.x_label)} %{{x}}: {number}"
    trace = line(safe(name), x, series.y, colour, dash, symbol, hover, mode=mode)
    if series.low and series.high:
        trace["error_y"] = error_bars(series.y, series.low, series.high, colour)
    if about.x_low and about.x_high:
        trace["error_x"] = error_bars(about.x_values, about.x_low, about.x_high, colour)
    return trace


def _apart(x: Sequence[float], logarithmic: bool) -> list[float]:
    """The values of x, rising, whose names have room beside each other."""
    place = {value: math.log(value) if logarithmic else value for value in sorted(set(x))}
    room = ROOM * (max(place.values()) - min(place.values()))
    named: list[float] = []
    for value in place:
        if not named or place[value] - place[named[-1]] >= room:
            named.append(value)
    return named


def _values(about: Panel) -> dict[str, list]:
    """The numbers behind a panel, as they are downloaded."""
    numbers = {about.x_label: about.x_values}
    for end, values in (("low", about.x_low), ("high", about.x_high)):
        numbers |= {f"{about.x_label}, {end}": values} if values else {}
    for series in about.series:
        name = f"{series.name}{' (paper)' if series.paper else ''}"
        numbers[name] = series.y
        numbers |= {f"{name}, low": series.low} if series.low else {}
        numbers |= {f"{name}, high": series.high} if series.high else {}
    return numbers
