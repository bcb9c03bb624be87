"""The findings, a panel each: what is the matter, the numbers of ours that show it, and where to look."""

import streamlit as st

from analysis.papers.findings import Finding, findings
from analysis.papers.ours import commands, readings
from app.papers import row, words
from app.papers.found import LIVE, Stored, arguments
from app.ui import jobs, widgets


def show(stored: Stored) -> None:
    """All of them, two beside each other; those that are measured live come last, into their places."""
    st.header("Eleven findings about the papers", anchor=False)
    places = []
    with st.grid(2, min_column_width=420, gap="large"):
        for finding in findings():
            with st.container(border=True, key=f"finding_{finding.number}"):
                st.subheader(f"{finding.number}. {finding.title}", anchor=False)
                widgets.prose(finding.says, "more")
                places.append((st.container(), finding))
    for place, finding in sorted(places, key=lambda one: one[1].beside.job.verb in LIVE):
        with place, widgets.guarded():
            stored.measure(finding.beside.job)
            _numbers(finding, stored)


def _numbers(finding: Finding, stored: Stored) -> None:
    ours = readings(finding.beside, stored)
    for one in ours:
        widgets.prose(f"{one.number.says}: {words.measured(one)}", "quiet")
    if ours:
        for about in stored.protocols(finding.beside, [one.number for one in ours]):
            widgets.prose(f"Measured: {words.made(about)}", "quiet")
    if finding.beside.numbers:
        told = ", then ".join(commands(stored.job(finding.beside).command, st.session_state["model"]))
        widgets.prose(f"Made by: {told}" if ours else f"Not measured here yet: {told}", "quiet")
    job = finding.beside.job
    if not ours and job.verb in LIVE and (args := arguments(job)) is not None:
        jobs.run_button("Measure it here", job.verb, args, f"finding_{finding.number}_run")
    row.sources(finding.beside, stored)
    row.link(finding.beside.panel)
