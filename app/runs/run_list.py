"""The list of stored runs: searched, filtered, one of them opened by a click; bundles come in and go out here."""

from collections.abc import Sequence
from datetime import datetime
from io import BytesIO
from typing import Any

import streamlit as st

from analysis.package import PROGRAM
from analysis.runs.bundle import MOST_RUNS
from analysis.runs.price import spell, spell_bytes
from analysis.runs.search import Row
from app import cached, topbar
from app.runs import run_pages, run_words
from app.selection import state
from app.ui import jobs, painted, share, tables, widgets

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


def controls() -> None:
    """Search, filter, and the way in for a bundle."""
    verbs = sorted({row.verb for row in cached.store().search()})
    widgets.settled("runs_made", [None, *verbs], None)
    help = "Finds the runs that have all of these words in their verb, text, model, settings, date or id."
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
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
        _bundle_in()


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
    with st.container(horizontal=True, gap="small"):
        widgets.numbers(values, "runs", "runs_rows")
        share.bundle(ids[:MOST_RUNS], f"Bundle of these {len(ids[:MOST_RUNS]):,}", "runs_bundle_all")


def _kept(row: Row) -> str:
    marks = {"pinned": row.pinned, "bundle": row.imported, "example": row.example}
    return next((name for name, holds in marks.items() if holds), "")


def _bundle_in() -> None:
    nonce = st.session_state.setdefault("runs_nonce", 0)
    with st.popover("Bring in a bundle", icon=":material/move_to_inbox:", key="runs_bring"):
        st.file_uploader(
            "A bundle made here or on another machine",
            key=f"runs_upload_{nonce}",
            on_change=_uploaded,
            args=(f"runs_upload_{nonce}",),
            help=f"Up to 64 MB; larger ones with {PROGRAM} bundle-in FILE.zip.",
        )
        st.caption("Names, sizes, schema and every checksum are checked before anything is kept.")


def _uploaded(name: str) -> None:
    file = st.session_state.get(name)
    if not isinstance(file, BytesIO):
        return
    with widgets.attempt("runs_trouble"):
        arrived = cached.store().unbundle(file)
        known = f", {_runs(len(arrived.known))} stood here already" if arrived.known else ""
        st.session_state["runs_said"] = f"{_runs(len(arrived.new))} came in{known}, with {len(arrived.texts):,} texts."
        state.choose(st.session_state, run=(arrived.new or arrived.known)[0])
    topbar.release(file)
    st.session_state["runs_nonce"] += 1


def _runs(count: int) -> str:
    return f"{count:,} run" if count == 1 else f"{count:,} runs"


def news() -> None:
    """What the last click did, with Undo after a deletion, and what went wrong."""
    message = st.session_state.pop("runs_said", None)
    widgets.trouble("runs_trouble")
    st.session_state["runs_trouble"] = None
    if message is not None:
        st.success(widgets.plain(message))
    gone = st.session_state.get("runs_gone", [])
    if gone:
        with st.container(horizontal=True, vertical_alignment="center"):
            widgets.prose(f"{_runs(len(gone))} deleted.", "quiet")
            st.button("Undo", key="runs_undo", icon=":material/undo:", on_click=bring_back, args=(gone,))


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
        st.session_state["runs_said"] = f"{_runs(len(ids))} brought back."
    st.session_state["runs_gone"] = []


def disk(rows: Sequence[Row]) -> None:
    """What lies on the disk, what is kept, and what can be cleaned up."""
    used = cached.store().usage()
    label = f"Disk: {spell_bytes(used.bytes)} of {spell_bytes(used.kept_bytes)}"
    with st.popover(label, icon=":material/hard_drive:", key="runs_disk"):
        widgets.prose(
            [
                f"{_runs(used.runs)} take up {spell_bytes(used.bytes)}, {used.pinned:,} of them pinned "
                f"{spell_bytes(used.pinned_bytes)}; {used.texts:,} texts {spell_bytes(used.text_bytes)}.",
                f"Beyond {used.kept_runs:,} runs or {spell_bytes(used.kept_bytes)} the oldest computed here are "
                "removed and more from bundles refused; pinned ones stay.",
            ],
            "quiet",
        )
        with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
            runs = st.number_input("Runs to keep", 1, 100_000, used.kept_runs, key="runs_keep", width=140)
            size = st.number_input("GB to keep", 0.01, 10_000.0, used.kept_bytes / 1e9, key="runs_keep_gb", width=140)
            st.button("Keep this much", key="runs_keep_set", on_click=_keep, args=(int(runs), round(size * 1e9)))
        deletable = [row.id for row in rows if not row.pinned and not row.example]
        if deletable:
            label, help = f"Delete the {_runs(len(deletable))} of this list", "What is pinned stays; you can undo it."
            look: dict[str, Any] = {"on_click": delete, "args": (deletable,), "icon": ":material/delete:", "help": help}
            st.button(label, key="runs_delete_all", **look)
        if used.deleted:
            gone = [run.id for run in cached.store().deleted()]
            widgets.prose(f"{_runs(len(gone))} deleted in the last 7 days, {spell_bytes(used.deleted_bytes)}.", "quiet")
            with st.container(horizontal=True, gap="small"):
                st.button("Bring them back", key="runs_back", on_click=bring_back, args=(gone,))
                st.button("Remove for good", key="runs_empty", on_click=_empty, type="tertiary")


def _keep(runs: int, size: int) -> None:
    with widgets.attempt("runs_trouble"):
        cached.store().keep(runs, size)


def _empty() -> None:
    cached.store().empty()
    st.session_state["runs_gone"] = []
