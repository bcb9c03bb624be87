"""The menu beside the list of runs: bundles come in and go out, and what lies on the disk is said and cleaned up."""

from collections.abc import Sequence
from functools import partial
from io import BytesIO
from typing import Any

import streamlit as st

from analysis.package import PROGRAM
from analysis.runs.bundle import MOST_RUNS
from analysis.runs.price import spell_bytes
from analysis.runs.search import Row
from app import cached, topbar
from app.runs import run_list, run_words
from app.selection import state
from app.ui import share, widgets


def menu(rows: Sequence[Row]) -> None:
    """Bundles and the disk; `rows`: those of the list."""
    with st.popover("Bundles and disk", icon=":material/inventory_2:", key="runs_menu"):
        upload = f"runs_upload_{st.session_state.setdefault('runs_nonce', 0)}"
        st.file_uploader(
            "Bring in a bundle made here or on another machine",
            key=upload,
            on_change=_uploaded,
            args=(upload,),
            help=f"Up to 64 MB; larger ones with {PROGRAM} bundle-in FILE.zip.",
        )
        st.caption("Names, sizes, schema and every checksum are checked before anything is kept.")
        if rows:
            ids = [row.id for row in rows[:MOST_RUNS]]
            share.bundle(ids, f"Bundle of these {len(ids):,}", "runs_bundle_all")
        st.divider()
        # What lies on the disk, what is kept, and what can be cleaned up.
        used = cached.store().usage()
        widgets.prose(
            [
                f"Disk: {spell_bytes(used.bytes)} of {spell_bytes(used.kept_bytes)}. {run_words.runs(used.runs)}, "
                f"{used.pinned:,} of them pinned {spell_bytes(used.pinned_bytes)}; {used.texts:,} texts "
                f"{spell_bytes(used.text_bytes)}.",
                f"Beyond {used.kept_runs:,} runs or {spell_bytes(used.kept_bytes)} the oldest computed here are "
                "removed and more from bundles refused; pinned ones stay.",
            ],
            "quiet",
        )
        with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
            runs = st.number_input("Runs to keep", 1, 100_000, used.kept_runs, key="runs_keep", width=140)
            size = st.number_input("GB to keep", 0.01, 10_000.0, used.kept_bytes / 1e9, key="runs_keep_gb", width=140)
            keep = widgets.attempt("runs_trouble")(partial(cached.store().keep, int(runs), round(size * 1e9)))
            st.button("Keep this much", key="runs_keep_set", on_click=keep)
        deletable = [row.id for row in rows if not row.pinned and not row.example]
        if deletable:
            look: dict[str, Any] = {"on_click": run_list.delete, "args": (deletable,), "icon": ":material/delete:"}
            look |= {"help": "What is pinned stays; you can undo it.", "key": "runs_delete_all"}
            st.button(f"Delete the {run_words.runs(len(deletable))} of this list", **look)
        if used.deleted:
            gone = [run.id for run in cached.store().deleted()]
            deleted = f"{run_words.runs(len(gone))} deleted in the last 7 days, {spell_bytes(used.deleted_bytes)}."
            widgets.prose(deleted, "quiet")
            with st.container(horizontal=True, gap="small"):
                st.button("Bring them back", key="runs_back", on_click=run_list.bring_back, args=(gone,))
                st.button("Remove for good", key="runs_empty", on_click=_empty, type="tertiary")


def _uploaded(name: str) -> None:
    file = st.session_state.get(name)
    if not isinstance(file, BytesIO):
        return
    with widgets.attempt("runs_trouble"):
        arrived = cached.store().unbundle(file)
        known = f", {run_words.runs(len(arrived.known))} stood here already" if arrived.known else ""
        came = f"{run_words.runs(len(arrived.new))} came in{known}"
        st.session_state["runs_said"] = f"{came}, with {len(arrived.texts):,} texts."
        state.choose(st.session_state, run=(arrived.new or arrived.known)[0])
    topbar.release(file)
    st.session_state["runs_nonce"] += 1


def _empty() -> None:
    cached.store().empty()
    st.session_state["runs_gone"] = []
