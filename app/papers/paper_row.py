"""One printed row in full, and the findings, a panel each: what is printed, what is measured here, and how."""

import streamlit as st

from analysis.papers.beside import Finding, Key, beside, findings, maker, panels_of_studies, printed
from analysis.papers.ours import ALIKE, Beside, Panel, Reading, commands, readings
from app import cached
from app.papers import paper_words
from app.papers.lookup import LIVE, Lookup, request_of
from app.selection.menu import page_at
from app.ui import foot, jobs, tables, widgets

FILES = {  # command -> what a button needs
    "study": "a folder of texts into models_cache/corpora",
    "benchmark": "the benchmarks' files into models_cache/benchmarks",
}
PRINTED = {"column": tables.Column("printed", wrap=True), "value": tables.Column("value")}
DOUBT = {"doubt": tables.Column("doubt", wrap=True)}
HERE = {
    "says": tables.Column("here", wrap=True),
    "value": tables.Column("value (95% interval)", help=cached.glossary("interval"), wrap=True),
    "column": tables.Column("beside", wrap=True),
}


def show(key: Key, state: str, ours: list[Reading], lookup: Lookup) -> None:
    """The row, its state, the reason, what is printed and measured, the button; folded how it was made."""
    paper, table, row = key
    reference, (icon, colour, _) = beside()[key], paper_words.LOOK[state]
    st.header(f"{paper_words.SHORT[paper]}, {table}: {widgets.plain(row)}", anchor=False)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        # With what the number was measured on, where the row was not.
        label = f"{state}, {lookup.differences(key, ours)[0]}" if state == ALIKE else state
        st.badge(label, icon=icon, color=colour, help=cached.glossary("state of a printed row"))
    if why := reference.cannot or reference.damaged:
        widgets.prose(f"{why} (Finding {reference.finding} below.)" if reference.finding else why, "note")
    _printed(key)
    _here(key, ours, reference, lookup)
    panels = panels_of_studies()
    studies = dict.fromkeys(reading.number.study for reading in ours)
    others = [panels[name] for name in studies if name in panels and panels[name] != reference.panel]
    for panel in [*others, reference.panel]:
        _link(panel)
    job = lookup.job(reference)
    request = request_of(job)
    if request is not None:
        jobs.run_button("Measure it here", request, "papers_run")
    with st.expander("How it is measured", icon=":material/terminal:"):
        numbers = [reading.number for reading in ours]
        widgets.prose([paper_words.made(protocol) for protocol in lookup.protocols(reference, numbers)], "quiet")
        _sources(reference, lookup)
        # The commands that measure it, and what a button would need.
        has_button = request is not None
        lines = commands(job.command, st.session_state["model"])
        st.code("\n".join(lines), language=None, wrap_lines=True)
        if len(lines) > 1:
            widgets.prose("The first command trains the router: leave it out where the model has this one.", "quiet")
        if not has_button and job.verb in FILES:
            widgets.prose(f"To measure it here with a button, put {FILES[job.verb]}.", "quiet")


def _printed(key: Key) -> None:
    cells = printed()[key]
    values = {
        "column": [cell.column for cell in cells],
        "value": [paper_words.printed(cell) for cell in cells],
        "doubt": [cell.note if paper_words.doubtful(cell) else "" for cell in cells],
    }
    columns = PRINTED | (DOUBT if any(values["doubt"]) else {})
    tables.table(columns, values, key="papers_printed", identity=str(key), label="What the paper prints")
    widgets.prose("; ".join(dict.fromkeys(cell.protocol for cell in cells)), "quiet")


def _here(key: Key, ours: list[Reading], reference: Beside, lookup: Lookup) -> None:
    if not ours:
        needs = f" It needs: {reference.needs}" if reference.needs else ""
        widgets.prose(f"Nothing of this row is measured here yet.{needs}", "more")
        return
    values = {
        "says": [reading.number.says for reading in ours],
        "value": [paper_words.measured(reading) for reading in ours],
        "column": [reading.number.column for reading in ours],
    }
    tables.table(HERE, values, key="papers_here", identity=str(key), label="What is measured here")
    if sizes := lookup.sizes(reference, ours):
        widgets.prose(f"Measured on {'; '.join(sizes)}.", "quiet")


def _sources(reference: Beside, lookup: Lookup) -> None:
    """The other studies that numbers here are of, or would be, each with the command that makes them."""
    model = st.session_state["model"]
    known = {f"Made by the study {name}": command for name, command in lookup.other_commands(reference).items()}
    for name in lookup.missing(reference):
        known[f"Not stored yet for this model, the study {name}"] = maker(name).command
    lines = [f"{says}: {', then '.join(commands(command, model))}" for says, command in known.items()]
    widgets.prose(lines, "quiet")


def _link(panel: Panel) -> None:
    """The way to the place that shows what a row or a finding is about."""
    page = page_at(panel.page)
    assert page, panel.page
    foot.link(page.name, panel.label, panel.controls)


def all_findings(lookup: Lookup) -> None:
    """All findings, two beside each other."""
    with st.grid(2, min_column_width=420, gap="large"):
        for finding in findings():
            with st.container(border=True, key=f"finding_{finding.number}"), widgets.guarded():
                st.subheader(f"{finding.number}. {finding.title}", anchor=False)
                widgets.prose(finding.says, "more")
                _numbers(finding, lookup)


def _numbers(finding: Finding, lookup: Lookup) -> None:
    reference = finding.beside
    ours = readings(reference, lookup)
    lines = [f"{reading.number.says}: {paper_words.measured(reading)}" for reading in ours]
    for protocol in lookup.protocols(reference, [reading.number for reading in ours]):
        lines.append(f"Measured: {paper_words.made(protocol)}")
    if reference.numbers:
        steps = ", then ".join(commands(lookup.job(reference).command, st.session_state["model"]))
        lines.append(f"Made by: {steps}" if ours else f"Not measured here yet: {steps}")
    widgets.prose(lines, "quiet")
    request = request_of(reference.job) if reference.job.verb in LIVE and not ours else None
    if request is not None:
        jobs.run_button("Measure it here", request, f"finding_{finding.number}_run")
    _sources(reference, lookup)
    _link(reference.panel)
