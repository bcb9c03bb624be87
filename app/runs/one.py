"""One stored run: where it comes from, what it cost, the page that shows it, and all that is in it."""

import streamlit as st

from analysis.runs import Run, compare
from analysis.runs.price import spell
from app import cached
from app.runs import listed, pages, words
from app.selection import state
from app.ui import tables, widgets

NUMBERS = {
    "name": tables.Column("number", wrap=True),
    "value": tables.Column("value", "number", words="value_words"),
}
OUTDATED = (
    "Pages compute this anew when they need it: it was made with other weights, another router or policy, or an older "
    "version of this program."
)
SHOWN = 200  # rows of a table that are shown here; its CSV has all


def opened() -> Run | None:
    """The run that is open, or None; one that is gone is said."""
    if st.session_state["run"] is None:
        return None
    run = cached.find_run(st.session_state["run"])
    if run is None:
        st.caption(f"The run {st.session_state['run']} is not stored here, or no longer: bring it in with a bundle.")
        state.choose(st.session_state, run=None)
    return run


def show(run: Run) -> None:
    """Its head line, its buttons, its sentence, its numbers and tables."""
    st.header(f"{_begun(words.kind(run.verb, run.request))}, run {run.id}", anchor=False, help=cached.glossary("run"))
    widgets.source(run)
    _buttons(run)
    sentence = run.numbers.get("sentence")
    if isinstance(sentence, str):
        widgets.prose(sentence, "more")
    widgets.prose(_cost(run), "quiet")
    if not cached.store().answers(run):
        widgets.prose(OUTDATED, "note")
    rows = compare.numbers(run, run)
    with st.expander("All that is in it", icon=":material/inventory_2:"):
        _contents(run, rows)
    with st.expander("How it was asked for and made", icon=":material/tune:"):
        st.json({"request": run.request, "protocol": run.protocol}, expanded=2)


def _buttons(run: Run) -> None:
    link = pages.link(run)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if link:
            st.button(
                f"Open on {pages.title(link['page'])}",
                key="run_open",
                type="primary",
                icon=":material/open_in_new:",
                on_click=pages.go,
                args=(link,),
                help="With every control as it was when this run was asked for."
                if link["exact"]
                else "With the controls that its arguments name: the run was stored before pages kept all of theirs.",
            )
        if not run.example:
            pinned = run.marks.pinned
            st.button(
                "Unpin" if pinned else "Pin",
                key="run_pin",
                icon=":material/keep:",
                on_click=_pin,
                args=(run.id, not pinned),
                help="A pinned run is never removed to make room.",
            )
        listed.bundle([run.id], "Bundle", "run_bundle")
        if not run.example:
            st.button(
                "Delete",
                key="run_delete",
                icon=":material/delete:",
                type="tertiary",
                on_click=listed.delete,
                args=([run.id],),
            )


def _pin(run_id: str, pinned: bool) -> None:
    with widgets.attempt("runs_trouble"):
        cached.store().pin(run_id, pinned)


def _cost(run: Run) -> str:
    took = f"It took {spell(run.seconds)} and {run.bytes / 1e6:,.2f} MB."
    promised = (run.marks.link or {}).get("seconds")
    if run.example or run.marks.imported or not promised or run.seconds <= 0:
        return took
    return f"{took} Its button had said {spell(promised)} ({promised / run.seconds - 1:+.0%})."


def _contents(run: Run, rows: list[tuple]) -> None:
    if rows:
        values = {
            "name": [words.number(name, run.numbers) for name, _, _ in rows],
            "value": [value for _, value, _ in rows],
        }
        cells_shown = {"value_words": [f"{value:,.4g}" for value in values["value"]]}
        tables.table(
            NUMBERS, values | cells_shown, key="run_numbers", identity=run.id, label="Numbers of the run", height=240
        )
        widgets.numbers(values, f"run-{run.id}", "run_numbers_rows")
    for name in compare.tables(run):
        table = compare.columns(run, name)
        size = len(next(iter(table.values()), ()))
        st.subheader(f"{name}, {size:,} rows", anchor=False)
        cells_shown = {column: [_cell(cell) for cell in cells[:SHOWN]] for column, cells in table.items()}
        columns = {column: widgets.guess(column, cells) for column, cells in cells_shown.items()}
        tables.table(
            columns,
            cells_shown,
            key=f"run_table_{name}",
            identity=f"{run.id}.{name}",
            label=f"Table {name}",
            height=240,
        )
        widgets.numbers(table, f"run-{run.id}-{name}", f"run_table_{name}_rows")
    if run.arrays:
        widgets.prose(f"Arrays: {', '.join(run.arrays)}. A bundle holds them.", "quiet")


def _begun(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _cell(value: object) -> object:
    return str(value) if isinstance(value, (list, dict)) else value
