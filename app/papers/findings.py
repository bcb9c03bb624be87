"""The findings, a panel each: what is the matter, the numbers of ours that show it, and where to look."""

import streamlit as st

from analysis.papers.beside import Finding, findings
from analysis.papers.ours import commands, readings
from app.papers import row, words
from app.papers.lookup import LIVE, Lookup, arguments
from app.ui import jobs, widgets


def show(lookup: Lookup) -> None:
    """All of them, two beside each other; those that are measured live come last, into their places."""
    st.header("Eleven findings about the papers", anchor=False)
    places = []
    with st.grid(2, min_column_width=420, gap="large"):
        for finding in findings():
            with st.container(border=True, key=f"finding_{finding.number}"):
                st.subheader(f"{finding.number}. {finding.title}", anchor=False)
                widgets.prose(finding.says, "more")
                places.append((st.container(), finding))
    for place, finding in sorted(places, key=lambda item: item[1].beside.job.verb in LIVE):
        with place, widgets.guarded():
            lookup.measure(finding.beside.job)
            _numbers(finding, lookup)


def _numbers(finding: Finding, lookup: Lookup) -> None:
    beside, job = finding.beside, finding.beside.job
    ours = readings(beside, lookup)
    for reading in ours:
        widgets.prose(f"{reading.number.says}: {words.measured(reading)}", "quiet")
    for protocol in lookup.protocols(beside, [reading.number for reading in ours]):
        widgets.prose(f"Measured: {words.made(protocol)}", "quiet")
    if beside.numbers:
        lines = ", then ".join(commands(lookup.job(beside).command, st.session_state["model"]))
        widgets.prose(f"Made by: {lines}" if ours else f"Not measured here yet: {lines}", "quiet")
    if not ours and job.verb in LIVE and (args := arguments(job)) is not None:
        jobs.run_button("Measure it here", job.verb, args, f"finding_{finding.number}_run")
    row.sources(beside, lookup)
    row.link(beside.panel)
