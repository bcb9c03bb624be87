"""One stored run: where it comes from, what it cost, the page that shows it, and all that is in it."""

from functools import partial
from typing import Any

import streamlit as st

from analysis.claims import signed
from analysis.runs import Run, compare
from analysis.runs.price import spell
from analysis.runs.run import NAME_LENGTH
from app import cached
from app.runs import run_list, run_pages, run_words
from app.selection import state
from app.selection.menu import PAGES
from app.ui import jobs, plots, share, tables, widgets

NUMBERS = {
    "name": tables.Column("number", wrap=True),
    "value": tables.Column("value", "number", words="value_words"),
}
OUTDATED = (
    "Pages compute this anew when they need it: it was made with other weights, another router or policy, or an older "
    "version of this program."
)
EXACT = "With every control as it was when this run was asked for."
TOLD = "With the controls that its arguments name: the run was stored before pages kept all of theirs."
# Rows of a table that are shown here; its CSV has all.
SHOWN = 200


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
    kind = jobs.called(run.verb, run.request)
    title = run.marks.name or f"{kind[:1].upper()}{kind[1:]}"
    st.subheader(widgets.plain(title), anchor=False, help=f"Run {run.id}: {kind}. {cached.glossary('run')}")
    widgets.source(run)
    if not run.example:
        _words(run)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        look: dict[str, Any]
        if link := run_pages.link(run):
            look = {"type": "primary", "icon": ":material/open_in_new:", "help": EXACT if link["exact"] else TOLD}
            label = f"Open on {PAGES[link['page']].called}"
            st.button(label, key="run_open", on_click=run_pages.go, args=(link,), **look)
        if not run.example:
            pinned = run.marks.pinned
            look = {"icon": ":material/keep:", "help": "A pinned run is never removed to make room."}
            pin = widgets.attempt("runs_trouble")(partial(cached.store().pin, run.id, not pinned))
            st.button("Unpin" if pinned else "Pin", key="run_pin", on_click=pin, **look)
        share.bundle([run.id], "Bundle", "run_bundle")
        if not run.example:
            look = {"icon": ":material/delete:", "type": "tertiary"}
            st.button("Delete", key="run_delete", on_click=run_list.delete, args=([run.id],), **look)
    sentence = run.numbers.get("sentence")
    if isinstance(sentence, str):
        widgets.prose(sentence, "more")
    cost = f"It took {spell(run.seconds)} and {run.bytes / 1e6:,.2f} MB."
    promised = (run.marks.link or {}).get("seconds")
    if promised and run.seconds > 0 and not (run.example or run.marks.imported):
        cost += f" Its button had said {spell(promised)} ({signed(promised / run.seconds - 1, '.0%')})."
    widgets.prose(cost, "quiet")
    if not cached.store().answers(run):
        widgets.prose(OUTDATED, "note")
    with st.expander("All that is in it", icon=":material/inventory_2:"):
        _contents(run)
    with st.expander("How it was asked for and made", icon=":material/tune:"):
        st.json({"request": run.request, "protocol": run.protocol}, expanded=2)


def _words(run: Run) -> None:
    """The reader's own name, note and tags of a run; they go along in its bundle."""
    marks, keys = run.marks, [f"run_{field}_{run.id}" for field in ("name", "tags", "note")]
    with st.container(horizontal=True, gap="small"):
        look: dict[str, Any] = {"on_change": _described, "args": (run.id, *keys), "label_visibility": "collapsed"}
        st.text_input("Name", marks.name, NAME_LENGTH, keys[0], placeholder="your name for it", **look)
        st.text_input("Tags", " ".join(marks.tags), 200, keys[1], placeholder="tags", **look)
    st.text_area("Note", marks.note, 68, 2000, keys[2], placeholder="note", **look)


def _described(run_id: str, name: str, tags: str, note: str) -> None:
    with widgets.attempt("runs_trouble"):
        said = (st.session_state[key] for key in (name, note, tags))
        cached.store().describe(run_id, *said)


def _contents(run: Run) -> None:
    if rows := compare.numbers(run, run):
        values = {"name": [run_words.number(name, run.numbers) for name, _, _ in rows]}
        values |= {"value": [value for _, value, _ in rows]}
        cells = values | {"value_words": [f"{value:,.4g}" for value in values["value"]]}
        plots.listed(NUMBERS, cells, "run_numbers", "Numbers of the run", run.id, height=240)
    for name in compare.tables(run):
        table, key = compare.columns(run, name), f"run_table_{name}"
        st.subheader(f"{name}, {len(next(iter(table.values()), ())):,} rows", anchor=False)
        shown = {
            column: [str(cell) if isinstance(cell, (list, dict)) else cell for cell in cells_of[:SHOWN]]
            for column, cells_of in table.items()
        }
        columns = {column: tables.guess(column, cells_of) for column, cells_of in shown.items()}
        tables.table(columns, shown, key=key, identity=f"{run.id}.{name}", label=f"Table {name}", height=240)
        widgets.numbers(table, f"run-{run.id}-{name}", f"{key}_rows")
    if run.arrays:
        widgets.prose(f"Arrays: {', '.join(run.arrays)}. A bundle holds them.", "quiet")
