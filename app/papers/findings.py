"""The ten findings, a panel each: what is the matter, the numbers of ours that show it, and where to look."""

import streamlit as st

from analysis.papers.findings import Finding, findings
from analysis.papers.ours import readings
from app import widgets
from app.papers import row, words
from app.papers.found import Stored


def show(stored: Stored) -> None:
    """All ten, two beside each other."""
    st.header("Ten findings about the papers", anchor=False)
    with st.grid(2, min_column_width=420, gap="large"):
        for finding in findings():
            with st.container(border=True, key=f"finding_{finding.number}"), widgets.guarded():
                _panel(finding, stored)


def _panel(finding: Finding, stored: Stored) -> None:
    st.subheader(f"{finding.number}. {finding.title}", anchor=False)
    widgets.prose(finding.says, "more")
    ours = readings(finding.beside, stored)
    for one in ours:
        widgets.prose(f"{one.number.says}: {words.measured(one)}", "quiet")
    if ours:
        for about in stored.protocols(finding.beside, [one.number for one in ours]):
            widgets.prose(f"Measured: {words.made(about)}", "quiet")
    elif finding.beside.numbers:
        widgets.prose(f"Not measured here yet: {finding.beside.job.command}", "quiet")
    row.link(finding.beside.panel)
