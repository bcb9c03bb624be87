"""Two runs of one kind beside each other: what came out, on one scale, and what was asked differently."""

import functools

import streamlit as st

from analysis.runs import Run, compare
from analysis.runs.compare import Beside
from analysis.runs.keys import is_id
from app import cached
from app.runs import charts, words
from app.ui import tables, widgets

ASKED = {
    "name": tables.Column("setting or fact", wrap=True),
    "first": tables.Column("first run", wrap=True),
    "second": tables.Column("second run", wrap=True),
}
NUMBERS = {
    "name": tables.Column("number", wrap=True),
    "first": tables.Column("first run", "number", words="first_words"),
    "second": tables.Column("second run", "number", words="second_words"),
    "difference": tables.Column("difference", "number", words="difference_words", help="second run minus first run"),
    "ratio": tables.Column("ratio", "number", words="ratio_words", help="second run by first run"),
}


def show(run: Run) -> None:
    """Choose the second run; then any column that tables of both have, the main one first, configuration, numbers."""
    kind = words.kind(run.verb, run.request)
    rows = [row for row in cached.store().search(verb=run.verb) if row.id != run.id]
    if not rows:
        widgets.prose(f"There is no other run of this kind to compare it with yet: {kind}.", "quiet")
        return
    methods = cached.catalogue()
    named = {
        row.id: f"{row.text or row.model}: {words.settings(row.about, methods)} ({row.created[:10]}, {row.id})"
        for row in rows
    }
    widgets.settled("run_other", [None, *named], None)
    st.selectbox(
        f"Compare with another run: {kind}",
        list(named),
        index=None,
        key="run_other",
        format_func=named.get,
        placeholder="no other",
    )
    if st.session_state["run_other"] is None:
        return
    second = cached.store().open(st.session_state["run_other"])
    widgets.each(*(functools.partial(part, run, second) for part in (_tables, _configuration, _numbers)))


def _configuration(run: Run, second_run: Run) -> None:
    st.subheader("What differs in how they were made", anchor=False, help=cached.glossary("protocol"))
    differences = compare.configuration(run, second_run, _defaults())
    if not differences:
        widgets.prose("Nothing: the same request, made with the same versions on the same day.", "quiet")
        return
    values = {
        "name": [words.number(name, run.request) for name, _, _ in differences],
        "first": [_words(first) for _, first, _ in differences],
        "second": [_words(second) for _, _, second in differences],
    }
    tables.table(
        ASKED,
        values,
        key="runs_asked",
        identity=f"{run.id}.{second_run.id}",
        label="Differences in how they were made",
        height=240,
    )
    widgets.numbers(values, "configuration", "runs_asked_rows")


def _defaults() -> dict[str, dict]:
    """method -> {setting: its value where a run names none}."""
    return {
        name: {field["name"]: field["default"] for field in about["fields"]}
        for name, about in cached.catalogue().items()
    }


def _words(value: object) -> str:
    if isinstance(value, str) and is_id(value):
        return next((f"{name} ({key})" for key, name, _, _ in cached.store().texts() if key == value), value)
    if isinstance(value, str) and value in cached.catalogue():
        return cached.catalogue()[value]["title"]
    return "–" if value is None else f"{value:,.4g}" if isinstance(value, float) else str(value)


def _numbers(run: Run, second_run: Run) -> None:
    rows = compare.numbers(run, second_run)
    if not rows:
        return
    rows.sort(key=lambda row: row[1] == row[2])  # what differs comes first
    st.subheader("Numbers", anchor=False)
    pairs = [(first, second) for _, first, second in rows]
    values = {
        "name": [words.number(name, run.numbers) for name, _, _ in rows],
        "first": [first for first, _ in pairs],
        "second": [second for _, second in pairs],
        "difference": [None if None in pair else pair[1] - pair[0] for pair in pairs],
        "ratio": [None if None in pair or not pair[0] else pair[1] / pair[0] for pair in pairs],
    }
    spelled = {f"{name}_words": [_words(cell) for cell in cells] for name, cells in values.items() if name != "name"}
    tables.table(
        NUMBERS, values | spelled, key="runs_numbers", identity=f"{run.id}.{second_run.id}", label="Numbers", height=260
    )
    widgets.numbers(values, "numbers-of-two-runs", "runs_numbers_rows")


def _tables(run: Run, second_run: Run) -> None:
    shared = {}
    for name in compare.tables(run):
        if name in compare.tables(second_run):
            pair = compare.columns(run, name), compare.columns(second_run, name)
            both = [column for column in compare.measured(pair[0]) if column in compare.measured(pair[1])]
            if both:
                shared[name] = (*pair, both)
    if not shared:
        return
    st.subheader("Tables, on one scale", anchor=False)
    table, main = words.main(run.verb, {name: both for name, (_, _, both) in shared.items()})
    widgets.settled("runs_table", list(shared), table)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.selectbox("Table", list(shared), key="runs_table", width=260)
        first, second, offered = shared[st.session_state["runs_table"]]
        widgets.settled("runs_column", offered, main if main in offered else offered[0])
        st.selectbox("Column", offered, key="runs_column", format_func=words.column, width=260)
    column = st.session_state["runs_column"]
    rows = compare.beside(first, second, column)
    widgets.prose(_sentence(rows, column), "more")
    if not rows.labels:
        return
    values = {key: [label[place] for label in rows.labels] for place, key in enumerate(rows.keys or ["row"])}
    values |= {charts.FIRST: rows.first, charts.SECOND: rows.second}
    name = words.column(column)
    drawn = charts.both(rows, column)
    with st.grid(2, min_column_width=380, gap="large"):
        if drawn is not None:
            widgets.chart(
                drawn,
                values,
                title=f"Both runs: {name}",
                key="runs_both",
                alt=f"{name} of both runs, row by row",
            )
        widgets.chart(
            charts.against(rows, column),
            values,
            title=f"Row against row: {name}",
            key="runs_against",
            alt=f"{name} of the second run against the first, for every row that both have",
        )
    if (step := charts.thinned(rows)) > 1:
        st.caption(f"Every {step}th row is drawn; the CSV has all.")


def _sentence(rows: Beside, column: str) -> str:
    pairs = [
        (first, second)
        for first, second in zip(rows.first, rows.second, strict=True)
        if first is not None and second is not None
    ]
    name = words.column(column)
    by = f"matched by {' and '.join(map(words.column, rows.keys))}" if rows.keys else "matched in order"
    alone = f"; {rows.only:,} rows stand in one run only" if rows.only else ""
    if not pairs:
        return f"No row has {name} in both runs, {by}{alone}."
    higher, lower = (sum(test) for test in ([b > a for a, b in pairs], [b < a for a, b in pairs]))
    if len(pairs) == 1:
        ((first, second),) = pairs
        apart = f" ({second / first - 1:+.1%})".replace("-", "−") if first > 0 else ""
        return (
            f"{name[:1].upper()}{name[1:]}: {first:,.4g} in the first run, {second:,.4g} in the second{apart}{alone}."
        )
    mean = sum(b - a for a, b in pairs) / len(pairs)
    return (
        f"Of {len(pairs):,} rows that both have, {by}, the second run is higher in {higher:,} and lower in {lower:,}; "
        f"{name} differs by {mean:+.4g} on average{alone}."
    )
