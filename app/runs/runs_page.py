"""Runs: what was computed here, and how do two runs differ?"""

import streamlit as st

from analysis.runs.price import spell_bytes
from app import cached
from app.runs import one_run, run_list, run_pages, run_words, store_menu, two_runs
from app.ui import screen, widgets
from app.ui.tabs import drawer


def show() -> None:
    """The list of runs, beside it the open one, and below it another run to compare with."""
    run_pages.leave()
    rows, used = run_list.found(), cached.store().usage()
    count = f"{run_words.runs(used.runs)} of your own" if used.runs else "No run of your own"
    screen.answer(
        f"{count} {'are' if used.runs > 1 else 'is'} stored here.",
        f"They take {spell_bytes(used.bytes)}; the list also has the examples that came with the program.",
    )
    # What the last click did, with Undo after a deletion, and what went wrong.
    message = st.session_state.pop("runs_said", None)
    widgets.trouble("runs_trouble")
    st.session_state["runs_trouble"] = None
    if message is not None:
        st.success(widgets.plain(message))
    if gone := st.session_state.get("runs_gone"):
        with st.container(horizontal=True, vertical_alignment="center"):
            widgets.prose(f"{run_words.runs(len(gone))} deleted.", "quiet")
            st.button("Undo", key="runs_undo", icon=":material/undo:", on_click=run_list.bring_back, args=(gone,))
    with run_list.controls():
        store_menu.menu(rows)
    picture, card = screen.picture_and_card("runs", 0.7)
    with picture:
        if rows:
            run_list.table(rows)
            if st.session_state["run"] is None:
                st.caption("Click a row, or use the arrow keys, to open a run; a second click closes it.")
        else:
            st.info("No stored run has all of these words: take some away, or open a page to compute one.")
        for sentence in cached.store().damaged()[:3]:
            widgets.prose(sentence, "note")
    run = None
    with card, widgets.guarded():
        run = one_run.opened()
        if run is not None:
            one_run.show(run)
    if run is not None:
        drawer(
            "runs_beside", lambda: two_runs.show(run), ["run_other"], "Compare with another run", ":material/compare:"
        )
