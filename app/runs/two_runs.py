"""Two runs of one kind beside each other: what came out, on one scale, and what was asked differently."""

from typing import Any

import streamlit as st

from analysis.claims import signed
from analysis.runs import Run, compare
from analysis.runs.compare import Beside
from analysis.runs.keys import is_id
from app import cached
from app.runs import run_words
from app.ui import jobs, plots, tables, widgets
from app.ui.charts import CHANCE, HERE, NAMES, RANDOM, bars, figure, line, marks, safe

FIRST, SECOND = "first run", "second run"
BOTH = {"first": tables.Column(FIRST, wrap=True), "second": tables.Column(SECOND, wrap=True)}
ASKED = {"name": tables.Column("setting or fact", wrap=True)} | BOTH
NUMBERS = {"name": tables.Column("number", wrap=True)} | {
    name: tables.Column(title, "number", words=f"{name}_words", help=help)
    for name, title, help in (
        ("first", FIRST, ""),
        ("second", SECOND, ""),
        ("difference", "difference", "second run minus first run"),
        ("ratio", "ratio", "second run by first run"),
    )
}
MOST_POINTS, MOST_BARS = 4_000, 48


def show(run: Run) -> None:
    """Choose the second run; then any column that tables of both have, the main one first, configuration, numbers."""
    kind = jobs.called(run.verb, run.request)
    rows = [row for row in cached.store().search(verb=run.verb) if row.id != run.id]
    if not rows:
        widgets.prose(f"There is no other run of this kind to compare it with yet: {kind}.", "quiet")
        return
    methods, names = cached.catalogue(), {}
    for row in rows:
        settings = run_words.settings(row.about, methods)
        names[row.id] = f"{row.text or row.model}: {settings} ({row.created[:10]}, {row.id})"
    widgets.settled("run_other", [None, *names], None)
    look: dict[str, Any] = {"index": None, "format_func": names.get, "placeholder": "no other"}
    st.selectbox(f"Compare with another run: {kind}", list(names), key="run_other", **look)
    if st.session_state["run_other"] is None:
        return
    second = cached.store().open(st.session_state["run_other"])
    identity = f"{run.id}.{second.id}"
    with widgets.guarded():
        _tables(run, second)
    with widgets.guarded():
        st.subheader("What differs in how they were made", anchor=False, help=cached.glossary("protocol"))
        fields = {name: about["fields"] for name, about in methods.items()}
        # A setting that is named at its default makes no difference.
        defaults = {name: {field["name"]: field["default"] for field in of} for name, of in fields.items()}
        asked = [
            {"name": run_words.number(name, run.request), "first": _words(one), "second": _words(other)}
            for name, one, other in compare.configuration(run, second, defaults)
        ]
        if asked:
            plots.listed(ASKED, asked, "runs_asked", "Differences in how they were made", identity, height=240)
        else:
            widgets.prose("Nothing: the same request, made with the same versions on the same day.", "quiet")
    with widgets.guarded():
        _numbers(run, second, identity)


def _words(value: object) -> str:
    if isinstance(value, str) and is_id(value):
        return next((f"{name} ({key})" for key, name, _, _ in cached.store().texts() if key == value), value)
    if isinstance(value, str) and value in cached.catalogue():
        return cached.catalogue()[value]["title"]
    return "–" if value is None else f"{value:,.4g}" if isinstance(value, float) else str(value)


def _numbers(run: Run, second: Run, identity: str) -> None:
    # What differs comes first.
    rows = sorted(compare.numbers(run, second), key=lambda row: row[1] == row[2])
    if not rows:
        return
    st.subheader("Numbers", anchor=False)
    pairs = [row[1:] for row in rows]
    values = {
        "name": [run_words.number(name, run.numbers) for name, _, _ in rows],
        "first": [first for first, _ in pairs],
        "second": [second for _, second in pairs],
        "difference": [None if None in pair else pair[1] - pair[0] for pair in pairs],
        "ratio": [None if None in pair or not pair[0] else pair[1] / pair[0] for pair in pairs],
    }
    cells = values | {f"{name}_words": [_words(cell) for cell in values[name]] for name in values if name != "name"}
    plots.listed(NUMBERS, cells, "runs_numbers", "Numbers", identity, height=260)


def _tables(run: Run, second: Run) -> None:
    shared = {}
    for name in set(compare.tables(run)) & set(compare.tables(second)):
        pair = compare.columns(run, name), compare.columns(second, name)
        both = [column for column in compare.measured(pair[0]) if column in compare.measured(pair[1])]
        if both:
            shared[name] = (*pair, both)
    if not shared:
        return
    st.subheader("Tables, on one scale", anchor=False)
    listed = [name for name in compare.tables(run) if name in shared]
    table, main = compare.main(run.verb, {name: shared[name][2] for name in listed})
    widgets.settled("runs_table", listed, table)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.selectbox("Table", listed, key="runs_table", width=260)
        one, other, offered = shared[st.session_state["runs_table"]]
        widgets.settled("runs_column", offered, main if main in offered else offered[0])
        st.selectbox("Column", offered, key="runs_column", format_func=run_words.column, width=260)
    column = st.session_state["runs_column"]
    rows, name = compare.beside(one, other, column), run_words.column(column)
    widgets.prose(sentence(rows, name), "more")
    if rows.labels:
        values = {key: [label[place] for label in rows.labels] for place, key in enumerate(rows.keys or ["row"])}
        values |= {FIRST: rows.first, SECOND: rows.second}
        plots.draw(chart(rows, name), values, f"Both runs: {name}", "runs_both")
        if (step := _step(rows)) > 1:
            st.caption(f"Every {step}th row is drawn; the CSV has all.")


def sentence(rows: Beside, name: str) -> str:
    """How a number `name` of two runs differs over their rows."""
    both = zip(rows.first, rows.second, strict=True)
    pairs = [(first, second) for first, second in both if first is not None and second is not None]
    by = f"matched by {' and '.join(map(run_words.column, rows.keys))}" if rows.keys else "matched in order"
    alone = f"; {rows.only:,} rows stand in one run only" if rows.only else ""
    if not pairs:
        return f"No row has {name} in both runs, {by}{alone}."
    if len(pairs) == 1:
        ((first, second),) = pairs
        apart = f" ({signed(second / first - 1, '.1%')})" if first > 0 else ""
        name = f"{name[:1].upper()}{name[1:]}"
        return f"{name}: {first:,.4g} in the first run, {second:,.4g} in the second{apart}{alone}."
    higher, lower = sum(b > a for a, b in pairs), sum(b < a for a, b in pairs)
    mean = sum(b - a for a, b in pairs) / len(pairs)
    return (
        f"Of {len(pairs):,} rows that both have, {by}, the second run is higher in {higher:,} and lower in {lower:,}; "
        f"{name} differs by {signed(mean, '.4g')} on average{alone}."
    )


def chart(rows: Beside, name: str) -> dict:
    """Both runs over what names their rows: lines along a number or the order, bars over few names. Many rows with
    names stand at their value in the first and in the second run, equal ones on the dotted line."""
    step = _step(rows)
    first, second = rows.first[::step], rows.second[::step]
    labels = [" · ".join(safe(part) for part in label) for label in rows.labels[::step]]
    across = ", ".join(map(run_words.column, rows.keys)) or "row"
    if len(rows.keys) < 2 and all(isinstance(label[0], (int, float)) for label in rows.labels):
        x = [label[0] for label in rows.labels[::step]]
        symbols = ("circle", "square") if len(x) <= MOST_BARS else (None, None)
        data = [
            line(FIRST, x, first, HERE, "solid", symbols[0], hoverinfo="all"),
            line(SECOND, x, second, CHANCE, "dash", symbols[1], hoverinfo="all"),
        ]
        return figure(data, across, name)
    if len(labels) <= MOST_BARS:
        data = [
            bars(FIRST, labels, first, HERE, None, hoverinfo="all"),
            bars(SECOND, labels, second, CHANCE, None, "/", hoverinfo="all"),
        ]
        return figure(data, across, name, xaxis=NAMES)
    numbers = [value for value in first + second if value is not None]
    low, high = min(numbers, default=0), max(numbers, default=1)
    room = (high - low) * 0.04 or 1
    span = [low - room, high + room]
    look, hover = {"color": HERE, "size": 7, "opacity": 0.7}, "%{text}<br>first run %{x:.6g}, second run %{y:.6g}"
    data = [marks("a row", first, second, hover, look, text=labels), line("equal", span, span, RANDOM, "dot", None)]
    return figure(data, f"{name}, {FIRST}", f"{name}, {SECOND}", xaxis={"range": span}, yaxis={"range": span})


def _step(rows: Beside) -> int:
    """Every how many rows one is drawn."""
    return max(1, -(-len(rows.labels) // MOST_POINTS))
