"""Papers vs measured: every row that the papers print, beside what this installation measured."""

from collections import Counter
from typing import Any

import streamlit as st

from analysis.papers import PAPERS
from analysis.papers.beside import Key, beside, printed
from analysis.papers.ours import (
    ALIKE,
    CANNOT_HOLD,
    DAMAGED,
    MEASURED,
    NOT_MEASURED,
    RELATED,
    STATES,
    Reading,
    readings,
    row_state,
)
from app import cached
from app.papers import paper_row, paper_words
from app.papers.lookup import Lookup
from app.selection import state
from app.ui import painted, plots, screen, tables, widgets
from app.ui.charts import bars, figure
from app.ui.tabs import drawer

EVERY = "all"
COLUMNS = {
    "table": tables.Column("table"),
    "row": tables.Column("row", wrap=True),
    "state": tables.Column("state", wrap=True, help=cached.glossary("state of a printed row")),
    "printed": tables.Column("printed", wrap=True),
    "here": tables.Column("here", wrap=True),
    "on": tables.Column("measured on", wrap=True),
}
# Printed row -> its state, and what is measured of it.
States = dict[Key, tuple[str, list[Reading]]]


def states(lookup: Lookup) -> States:
    """The state of every printed row."""
    rows = {}
    for key, reference in beside().items():
        ours = readings(reference, lookup)
        rows[key] = row_state(reference, lookup.differences(key, ours), ours), ours
    return rows


def answer(rows: States) -> None:
    """How many rows are measured here, and what that means."""
    counts = Counter(row_state for row_state, _ in rows.values())
    screen.answer(
        f"{counts[ALIKE]} of {len(rows)} printed rows are measured here on other models, "
        f"{counts[MEASURED]} as printed.",
        f"A related quantity is measured of {counts[RELATED]} and nothing of {counts[NOT_MEASURED]}; "
        f"{counts[CANNOT_HOLD]} cannot hold, and of {counts[DAMAGED]} the printed text at hand is damaged. Numbers of "
        "other models and other texts stand beside the printed ones without a common scale.",
    )


def overview(rows: States) -> None:
    """Rows of every paper by state."""
    counts = Counter((paper, row_state) for (paper, _, _), (row_state, _) in rows.items())
    papers = list(reversed(PAPERS))
    names = [paper_words.SHORT[paper] for paper in papers]
    sizes = {name: [counts[paper, name] for paper in papers] for name in STATES}
    data = [
        bars(name, size, names, paper_words.LOOK[name][2], f"%{{y}}, {name}: %{{x}} rows", orientation="h")
        for name, size in sizes.items()
    ]
    drawn = figure(data, "printed rows", "", height=270, barmode="stack")
    plots.draw(drawn, {"paper": names, **sizes}, "Rows by paper", "papers_overview", "state of a printed row")


def table(rows: States, lookup: Lookup) -> Key:
    """The chosen paper's rows as a table; returns the one that is looked at."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        look: dict[str, Any] = {"format_func": paper_words.SHORT.get, "required": True}
        st.segmented_control("Paper", list(PAPERS), key="paper", **look)
        st.selectbox("State", [EVERY, *STATES], key="paper_state", width=190)
    paper, wanted = st.session_state["paper"], st.session_state["paper_state"]
    of_paper = [key for key in rows if key[0] == paper]
    listed = [key for key in of_paper if wanted in (EVERY, rows[key][0])]
    widgets.settled("paper_row", [None, *range(len(of_paper))], None)
    chosen = st.session_state["paper_row"]
    looked_at = next((key for key in listed if rows[key][0] != NOT_MEASURED), (listed or of_paper)[0])
    if chosen is not None and of_paper[chosen] in (listed or of_paper):
        looked_at = of_paper[chosen]
    if not listed:
        widgets.prose("No row of this paper is in this state.", "quiet")
        return looked_at

    def picked() -> None:
        if key := painted.picked("papers_rows", listed):
            state.choose(st.session_state, paper_row=of_paper.index(key))

    shown = []
    for key in listed:
        (_, name, row), (row_state, ours) = key, rows[key]
        # Numbers in doubt have a mark. Of ours one is enough, their names are long.
        cells = [(cell, "†" if paper_words.doubtful(cell) else "") for cell in printed()[key]]
        theirs = [f"{cell.column} {paper_words.printed(cell)}{mark}" for cell, mark in cells]
        measured = [f"{each.number.says} {paper_words.value(each.value, each.number.unit)}" for each in ours]
        words = {"printed": paper_words.one_line(theirs, 2), "here": paper_words.one_line(measured, 1) or "–"}
        # The first of what each says: parameters, or the tokens of a timing. Beside the row stands all.
        sizes = dict.fromkeys(size.partition(", ")[0] for size in lookup.sizes(beside()[key], ours))
        shown.append({"table": name, "row": row} | words | {"on": "; ".join(sizes), "state": row_state})
    look = {"identity": f"{paper}.{wanted}.{len(listed)}", "selected": listed.index(looked_at), "on_row": picked}
    plots.listed(COLUMNS, plots.columns(shown), "papers_rows", "Printed rows; choose one to look at it", **look)
    return looked_at


def show() -> None:
    """The rows of one paper, beside them the one that is looked at, and folded below all findings."""
    lookup = Lookup()
    rows = states(lookup)
    answer(rows)
    if cached.card(st.session_state["model"]) is None:
        widgets.prose(f"{st.session_state['model']} was never loaded here: nothing of it is looked up yet.", "note")
    picture, card = screen.picture_and_card("papers", 0.7)
    with picture:
        looked_at = table(rows, lookup)
    with card, widgets.guarded():
        paper_row.show(looked_at, *rows[looked_at], lookup)
    title = "Eleven findings about the papers"
    drawer("papers_findings", lambda: paper_row.all_findings(lookup), title=title, icon=":material/lightbulb:")
    with st.expander("Rows by paper", icon=":material/bar_chart:"):
        overview(rows)
