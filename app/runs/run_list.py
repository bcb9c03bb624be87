"""The list of stored runs: searched, filtered, one of them opened by a click; what was deleted comes back."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from analysis.runs.price import spell
from analysis.runs.search import Row
from app import cached
from app.runs import run_pages, run_words
from app.selection import state
from app.ui import jobs, painted, tables, widgets

COLUMNS = {
    "kept": tables.Column("", help="pinned, from a bundle, or an example that came with the program"),
    "verb": tables.Column("run of", wrap=True),
    "tags": tables.Column("tags", wrap=True),
    "text": tables.Column("text", wrap=True),
    "about": tables.Column("settings", wrap=True),
    "when": tables.Column("computed"),
    "took": tables.Column("took", words="took_words", spare=True),
    "model": tables.Column("model", spare=True),
}
# Of these, left out where they are the same in every row.
SAME = ("tags", "model")


def found() -> Sequence[Row]:
    """The runs that the search and the filters leave."""
    chosen = st.session_state
    return cached.store().search(chosen["runs_find"] or "", chosen["runs_made"], chosen["runs_pinned"])


def controls() -> DeltaGenerator:
    """Search and filter. Returns their line, to be added to."""
    verbs = sorted({row.verb for row in cached.store().search()})
    widgets.settled("runs_made", [None, *verbs], None)
    help = "Finds the runs that have all of these words in their verb, text, model, settings, date or id."
    line = st.container(horizontal=True, vertical_alignment="bottom", gap="small")
    with line:
        look: dict[str, Any] = {
            "max_chars": 80,
            "width": 320,
            "placeholder": "words, a text, a setting, an id",
            "help": help,
        }
        st.text_input("Search", key="runs_find", **look)
        look = {"index": None, "width": 320, "format_func": jobs.called, "placeholder": "everything"}
        st.selectbox("Runs of", verbs, key="runs_made", **look)
        st.toggle("Pinned only", key="runs_pinned")
    return line


def table(rows: Sequence[Row]) -> None:
    """The rows; a click opens one, a second click closes it."""
    ids, now, methods = [row.id for row in rows], st.session_state["run"], cached.catalogue()
    values: dict[str, list] = {
        "kept": [_kept(row) for row in rows],
        "verb": [row.name or jobs.called(row.verb) for row in rows],
        "tags": [" ".join(row.tags) for row in rows],
        "page": [run_pages.title_of(row.verb) for row in rows],
        "text": [row.text or "" for row in rows],
        "model": [row.model or "" for row in rows],
        "about": [run_words.settings(row.about, methods) for row in rows],
        "when": [f"{datetime.fromisoformat(row.created):%Y-%m-%d %H:%M}" for row in rows],
        "took": [row.seconds for row in rows],
        "size": [row.bytes for row in rows],
        "id": ids,
    }
    words = {"took_words": [spell(row.seconds) for row in rows]}
    tables.table(
        {name: column for name, column in COLUMNS.items() if name not in SAME or len(set(values[name])) > 1},
        values | words,
        key="runs_table_rows",
        identity=f"{hash(tuple((row.id, row.created, row.pinned, row.name, row.tags) for row in rows))}",
        label="Stored runs, the newest first; choose one to open it",
        selected=ids.index(now) if now in ids else None,
        on_row=lambda: state.choose(st.session_state, run=painted.picked("runs_table_rows", ids)),
        release=True,
        height=480,
    )
    widgets.numbers(values, "runs", "runs_rows")


def _kept(row: Row) -> str:
    marks = {"pinned": row.pinned, "bundle": row.imported, "example": row.example}
    return next((name for name, holds in marks.items() if holds), "")


def delete(ids: list[str]) -> None:
    """A callback: delete runs, so that Undo brings them back."""
    with widgets.attempt("runs_trouble"):
        for run_id in ids:
            cached.store().discard(run_id)
        st.session_state["runs_gone"] = ids
        state.choose(st.session_state, run=None)


def bring_back(ids: list[str]) -> None:
    """A callback: bring deleted runs back."""
    with widgets.attempt("runs_trouble"):
        for run_id in ids:
            cached.store().restore(run_id)
        st.session_state["runs_said"] = f"{run_words.runs(len(ids))} brought back."
    st.session_state["runs_gone"] = []
