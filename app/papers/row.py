"""One printed row in full: what the paper prints, what is measured here, what is wrong, and how to measure it."""

import streamlit as st

from analysis.papers.beside import beside, printed
from analysis.papers.cells import Cell
from analysis.papers.ours import Beside, Job, Panel, Reading, commands
from analysis.papers.places import ELSEWHERE, maker
from app import cached
from app.papers import words
from app.papers.found import Stored, arguments
from app.ui import jobs, tables, widgets

FILES = {  # verb -> what a button needs
    "study": "a folder of texts into models_cache/corpora",
    "benchmark": "the benchmarks' files into models_cache/benchmarks",
}
PRINTED = {
    "column": tables.Column("printed", wrap=True),
    "value": tables.Column("value"),
    "doubt": tables.Column("doubt", wrap=True),
}
HERE = {
    "says": tables.Column("here", wrap=True),
    "value": tables.Column("value (95% interval)", help=cached.glossary("interval"), wrap=True),
    "column": tables.Column("beside", wrap=True),
}


def show(key: tuple[str, str, str], row_state: str, ours: list[Reading], stored: Stored) -> None:
    """The row, its state, both tables, the reason, the command and the button."""
    paper, table, row = key
    one, cells = beside()[key], printed()[key]
    st.header(f"{words.SHORT[paper]}, {table}: {widgets.plain(row)}", anchor=False)
    icon, colour = words.LOOK[row_state]
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.badge(row_state, icon=icon, color=colour, help=cached.glossary("state of a printed row"))
        for about in stored.protocols(one, [reading.number for reading in ours]):
            widgets.prose(words.made(about), "quiet")
    if why := one.cannot or one.damaged:
        found = f" (Finding {one.finding} below.)" if one.finding else ""
        widgets.prose(f"{why}{found}", "note")
    with st.grid(2, min_column_width=560, gap="large"):
        with st.container():
            _printed(cells)
        with st.container():
            _here(key, ours, one)
    sources(one, stored)
    for name in dict.fromkeys(reading.number.study for reading in ours):
        if name in ELSEWHERE and ELSEWHERE[name] != one.panel:
            link(ELSEWHERE[name])
    measure(stored.job(one), one, "papers_run")


def sources(one: Beside, stored: Stored) -> None:
    """The other studies that numbers here are of, or would be, each with the command that makes them."""
    model = st.session_state["model"]
    said = [
        f"Made by the study {name}: {', then '.join(commands(command, model))}"
        for name, command in stored.made(one).items()
    ]
    said += [
        f"Not stored yet for this model, the study {name}: {', then '.join(commands(maker(name).command, model))}"
        for name in stored.missing(one)
    ]
    widgets.prose(said, "quiet")


def _printed(cells: list[Cell]) -> None:
    values = {
        "column": [cell.column for cell in cells],
        "value": [words.printed(cell) for cell in cells],
        "doubt": [cell.note if words.doubtful(cell) else "" for cell in cells],
    }
    shown = PRINTED if any(values["doubt"]) else {name: PRINTED[name] for name in ("column", "value")}
    tables.table(shown, values, key="papers_printed", identity=str(cells[0]), label="What the paper prints")
    widgets.prose("; ".join(dict.fromkeys(cell.protocol for cell in cells)), "quiet")


def _here(key: tuple[str, str, str], ours: list[Reading], one: Beside) -> None:
    if not ours:
        widgets.prose(
            "Nothing of this row is measured here yet." + (f" It needs: {one.needs}" * bool(one.needs)), "more"
        )
        return
    values = {
        "says": [reading.number.says for reading in ours],
        "value": [words.measured(reading) for reading in ours],
        "column": [reading.number.column for reading in ours],
    }
    tables.table(HERE, values, key="papers_here", identity=str(key), label="What is measured here")


def measure(job: Job, one: Beside, key: str) -> None:
    """The panel's link, the command, and where this machine allows it a button."""
    link(one.panel)
    *first, last = commands(job.command, st.session_state["model"])
    st.code("\n".join([*first, last]), language=None, wrap_lines=True)
    if first:
        widgets.prose("The first command trains the router: leave it out where the model has this one.", "quiet")
    args = arguments(job)
    if args is not None:
        jobs.run_button("Measure it here", job.verb, args, key)
    elif job.verb in FILES:
        widgets.prose(f"To measure it here with a button, put {FILES[job.verb]}.", "quiet")


def link(panel: Panel) -> None:
    """The way to the place that shows what a row or a finding is about."""
    view = f"views/{panel.page.replace('-', '_') or 'start'}.py"
    st.page_link(view, label=panel.label, icon=":material/arrow_forward:", query_params=panel.controls or None)
