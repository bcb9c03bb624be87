"""Papers vs measured: which rows there are, and their states; one row in full stands in app/papers/row.py."""

from collections import Counter

import streamlit as st

from analysis.papers import PAPERS
from analysis.papers.beside import beside, printed
from analysis.papers.ours import (
    CANNOT_HOLD,
    DAMAGED,
    MEASURED,
    NOT_MEASURED,
    RELATED,
    STATES,
    Reading,
    readings,
    state as state_of,
)
from app import cached
from app.papers import words
from app.papers.found import Stored
from app.selection import state
from app.ui import painted, tables, widgets
from app.ui.charts import GROUPS, RANDOM, bars, figure

EVERY = "all"
COLOURS = {MEASURED: GROUPS[2], RELATED: GROUPS[0], NOT_MEASURED: RANDOM, CANNOT_HOLD: GROUPS[1], DAMAGED: GROUPS[3]}
COLUMNS = {
    "table": tables.Column("table"),
    "row": tables.Column("row", wrap=True),
    "state": tables.Column("state", help=cached.glossary("state of a printed row")),
    "printed": tables.Column("printed", wrap=True),
    "here": tables.Column("here", wrap=True),
}
Known = dict[tuple[str, str, str], tuple[str, list[Reading]]]


def known(stored: Stored) -> Known:
    """(paper, table, row) -> its state, and what is measured of it, of every printed row."""
    found = {}
    for key, one in beside().items():
        ours = readings(one, stored)
        found[key] = state_of(one, ours, [cell.column for cell in printed()[key]]), ours
    return found


def answer(found: Known) -> None:
    """How many rows are measured here, and what that means."""
    counts = Counter(row_state for row_state, _ in found.values())
    model = st.session_state["model"]
    widgets.prose(
        f"Of {len(found)} printed rows, {counts[MEASURED]} have their own quantity measured here with the model "
        f"{model} and {counts[RELATED]} a related one; {counts[NOT_MEASURED]} are not measured here, "
        f"{counts[CANNOT_HOLD]} cannot hold as printed, and of {counts[DAMAGED]} the printed text at hand is damaged."
    )
    widgets.prose(
        "The papers used other models and other texts, so their numbers stand beside ours without a common scale.",
        "more",
    )


def overview(found: Known) -> None:
    """Rows of every paper by state."""
    counts = Counter((key[0], row_state) for key, (row_state, _) in found.items())
    papers = list(reversed(PAPERS))
    shown = [words.SHORT[paper] for paper in papers]
    sizes = {one: [counts[paper, one] for paper in papers] for one in STATES}
    data = [
        bars(one, size, shown, COLOURS[one], f"%{{y}}, {one}: %{{x}} rows", orientation="h")
        for one, size in sizes.items()
    ]
    widgets.chart(
        figure(data, "printed rows", "", height=270, barmode="stack"),
        {"paper": shown} | sizes,
        title="Rows by paper",
        key="papers_overview",
        alt=f"Printed rows of every paper: {', '.join(STATES)}",
        help=cached.glossary("state of a printed row"),
    )


def rows(found: Known) -> tuple[str, str, str]:
    """The chosen paper's rows as a table; returns the one that is looked at."""
    chosen = st.session_state
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        st.segmented_control("Paper", list(PAPERS), format_func=words.SHORT.get, key="paper", required=True)
        st.segmented_control("State", [EVERY, *STATES], key="paper_state", required=True)
    mine = [key for key in found if key[0] == chosen["paper"]]
    widgets.settled("paper_row", [None, *range(len(mine))], None)
    listed = [key for key in mine if chosen["paper_state"] in (EVERY, found[key][0])]
    if not listed:
        widgets.prose("No row of this paper is in this state.", "quiet")
    values = {
        "table": [key[1] for key in listed],
        "row": [key[2] for key in listed],
        "printed": [words.row_printed(printed()[key]) for key in listed],
        "here": [words.row_measured(found[key][1]) or words.NOTHING for key in listed],
        "state": [found[key][0] for key in listed],
    }
    first = next((key for key in listed if found[key][0] != NOT_MEASURED), (listed or mine)[0])
    at = chosen["paper_row"]
    looked_at = first if at is None or mine[at] not in (listed or mine) else mine[at]
    if listed:
        tables.table(
            COLUMNS,
            values,
            key="papers_rows",
            identity=f"{chosen['paper']}.{chosen['paper_state']}.{len(listed)}",
            label="Printed rows; choose one to look at it",
            selected=listed.index(looked_at),
            on_row=lambda: _take(listed, mine),
        )
        widgets.numbers(values, f"papers-{chosen['paper']}", "papers_numbers")
    return looked_at


def _take(listed: list, mine: list) -> None:
    if row := painted.picked("papers_rows", listed):
        state.choose(st.session_state, paper_row=mine.index(row))
