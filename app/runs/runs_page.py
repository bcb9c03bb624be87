"""Runs: what was computed here, and how do two runs differ?"""

import streamlit as st

from analysis.runs.price import spell_bytes
from app import cached
from app.runs import one_run, run_list, run_pages, two_runs
from app.ui import widgets


def show() -> None:
    """The list of runs, the open one, and another beside it."""
    run_pages.leave()
    widgets.header(
        "What was computed here, and how do two runs differ?",
        "Every stored result with its protocol: search, open, pin, compare, or take it to another machine",
    )
    rows = run_list.found()
    used = cached.store().usage()
    own = f"{used.runs:,} run{'s' * (used.runs != 1)} of your own {'is' if used.runs == 1 else 'are'} stored here"
    widgets.prose(
        f"{own}, in {spell_bytes(used.bytes)}. This list shows {len(rows):,}, with the examples that came with the "
        "program."
        if used.runs
        else f"No run of your own is stored here yet; the {len(rows):,} in this list came with the program."
    )
    run_list.news()
    run_list.controls()
    if rows:
        run_list.table(rows)
    else:
        st.info("No stored run has all of these words: take some away, or open a page to compute one.")
    run_list.disk(rows)
    for sentence in cached.store().damaged()[:3]:
        widgets.prose(sentence, "note")
    run = one_run.opened()
    if run is None:
        st.caption("Click a row, or use the arrow keys, to open a run; a second click closes it.")
    else:
        with widgets.guarded():
            one_run.show(run)
        with widgets.guarded():
            st.header("Beside another run", anchor=False)
            two_runs.show(run)
