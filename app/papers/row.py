"""One printed row in full: what the paper prints, what is measured here, what is wrong, and how to measure it."""

import streamlit as st

from analysis.papers.beside import Key, beside, maker, panels_of_studies, printed
from analysis.papers.cells import Cell
from analysis.papers.ours import Beside, Job, Panel, Reading, commands
from app import cached
from app.papers import words
from app.papers.lookup import Lookup, arguments
from app.ui import jobs, tables, widgets

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
    """The row, its state, both tables, the reason, the command and the button."""
    paper, table, row = key
    reference, cells = beside()[key], printed()[key]
    st.header(f"{words.SHORT[paper]}, {table}: {widgets.plain(row)}", anchor=False)
    icon, colour = words.LOOK[state]
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.badge(state, icon=icon, color=colour, help=cached.glossary("state of a printed row"))
        for protocol in lookup.protocols(reference, [reading.number for reading in ours]):
            widgets.prose(words.made(protocol), "quiet")
    if why := reference.cannot or reference.damaged:
        widgets.prose(f"{why} (Finding {reference.finding} below.)" if reference.finding else why, "note")
    with st.grid(2, min_column_width=560, gap="large"):
        with st.container():
            _printed(cells)
        with st.container():
            _here(key, ours, reference)
    sources(reference, lookup)
    panels = panels_of_studies()
    for name in dict.fromkeys(reading.number.study for reading in ours):
        if name in panels and panels[name] != reference.panel:
            link(panels[name])
    measure(lookup.job(reference), reference.panel)


def sources(reference: Beside, lookup: Lookup) -> None:
    """The other studies that numbers here are of, or would be, each with the command that makes them."""
    model = st.session_state["model"]
    stored = {f"Made by the study {name}": command for name, command in lookup.other_commands(reference).items()}
    missing = {
        f"Not stored yet for this model, the study {name}": maker(name).command for name in lookup.missing(reference)
    }
    lines = [f"{says}: {', then '.join(commands(command, model))}" for says, command in (stored | missing).items()]
    widgets.prose(lines, "quiet")


def _printed(cells: list[Cell]) -> None:
    values = {
        "column": [cell.column for cell in cells],
        "value": [words.printed(cell) for cell in cells],
        "doubt": [cell.note if words.doubtful(cell) else "" for cell in cells],
    }
    columns = PRINTED | DOUBT if any(values["doubt"]) else PRINTED
    tables.table(columns, values, key="papers_printed", identity=str(cells[0]), label="What the paper prints")
    widgets.prose("; ".join(dict.fromkeys(cell.protocol for cell in cells)), "quiet")


def _here(key: Key, ours: list[Reading], reference: Beside) -> None:
    if not ours:
        needs = f" It needs: {reference.needs}" if reference.needs else ""
        widgets.prose(f"Nothing of this row is measured here yet.{needs}", "more")
        return
    values = {
        "says": [reading.number.says for reading in ours],
        "value": [words.measured(reading) for reading in ours],
        "column": [reading.number.column for reading in ours],
    }
    tables.table(HERE, values, key="papers_here", identity=str(key), label="What is measured here")


def measure(job: Job, panel: Panel) -> None:
    """The panel's link, the command, and where this machine allows it a button."""
    link(panel)
    lines = commands(job.command, st.session_state["model"])
    st.code("\n".join(lines), language=None, wrap_lines=True)
    if len(lines) > 1:
        widgets.prose("The first command trains the router: leave it out where the model has this one.", "quiet")
    args = arguments(job)
    if args is not None:
        jobs.run_button("Measure it here", job.verb, args, "papers_run")
    elif job.verb in FILES:
        widgets.prose(f"To measure it here with a button, put {FILES[job.verb]}.", "quiet")


def link(panel: Panel) -> None:
    """The way to the place that shows what a row or a finding is about."""
    view = f"views/{panel.page.replace('-', '_') or 'start'}.py"
    st.page_link(view, label=panel.label, icon=":material/arrow_forward:", query_params=panel.controls or None)
