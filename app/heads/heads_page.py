"""Attention heads: the map of all heads, beside it the card of one, and the rest folded away."""

from zlib import crc32

import streamlit as st

from analysis.commands.heads import Statistics
from analysis.runs import Run
from app import cached
from app.heads import card, one_head, overview, study
from app.heads.head_statistics import ALL, cells_of, offered, ranked, spelled
from app.selection import state
from app.ui import asking, fields, foot, head_cards, screen, widgets
from app.ui.reading import LONG
from app.ui.tabs import drawer

# Of the picture's width: the card of one head, and two side by side.
ONE, TWO = 0.85, 1.8
ANSWERS = {
    "far_peaks": "Head {cell} reads farthest: {value} of its attention, above chance.",
    "induction": "Head {cell} copies what came next with {value} of its attention.",
    "entropy": "Head {cell} is the sharpest: entropy {value} nats.",
}
USUAL = {"statistic": "far_peaks", "heads_across": "entropy", "heads_colour": "layer"}
HOLDS = ["named", "heads_shown", "heads_across", "heads_colour", "order", "finder"]


def show() -> None:
    """The screen."""
    _linked()
    inspected = asking.inspected()
    request = Statistics(**state.study_args(st.session_state, without_first=st.session_state["without_first"]))
    run = asking.ask(request, "Reading the text with every head", inspected["tokens"], _so_far)
    tokens, table = cached.columns(run, "tokens"), cached.columns(run, "heads")
    for control in ("statistic", "heads_across", "heads_colour"):
        widgets.settled(control, [*offered(table), *["layer"] * (control == "heads_colour")], USUAL[control])
    names, name = head_cards.names(), st.session_state["statistic"]
    # The shared selection, else the first by the statistic.
    cells, ranking = cells_of(table), ranked(table[name], st.session_state["order"] or ALL[name].first)
    cell = fields.cell([*(cells[row] for row in ranking), *cells])
    _answer(run, table, name, len(tokens["piece"]))
    beside = st.session_state["beside"]
    picture, right = screen.picture_and_card("heads", TWO if beside else ONE)
    with picture:
        pinned = st.session_state["other_head"] if beside == "head" else None
        overview.show(table, cell, names, head_cards.cards(), pinned, "heads_map")
        _more(inspected, table)
        widgets.prose(asking.card(st.session_state["model"]).get("own_reading") or [], "quiet")
    place = asking.layers(st.session_state["model"]).index(cell[0])
    foot.found(layer=cell[0], head=cell[1], budget_cells=str(place * (max(table["head"]) + 1) + cell[1]))
    shown = None
    with right, widgets.guarded():
        shown = card.show(run, table, tokens, cell, names)
    drawer("heads_evidence", lambda: study.show(run, table, tokens, cell, names), title="Study")
    # It draws the page anew, so it is asked for last.
    if shown is not None:
        one_head.cross(shown)


def _linked() -> None:
    """A link opens the tab, or the study, that holds what it brings, before anything on the page has to wait."""
    brought = st.session_state[state.LINKED]
    for tab, controls in card.HOLDS.items():
        if st.session_state["head_tab"] is None and brought & set(controls):
            state.choose(st.session_state, head_tab=tab)
    if brought & set(HOLDS):
        state.choose(st.session_state, heads_evidence=True)


def _so_far(table: dict) -> None:
    """The map while the text is read: the heads of the layers that are done."""
    # A second window changes the numbers of layers that were drawn before.
    overview.show(table, (-1, -1), {}, {}, None, f"heads_so_far_{crc32(repr(table).encode())}")


def _answer(run: Run, table: dict, name: str, tokens: int) -> None:
    """Who is first by the task that the map shows."""
    about, best = ALL[name], overview.first(table, name)
    scope = f"{tokens:,} tokens, every head and token" + ", the first token left out" * run.numbers["without_first"]
    if best is None:
        screen.answer(f"No head has a {about.short.lower()} in this text.", cached.glossary(about.term), scope)
        return
    value = table[name][cells_of(table).index(best)]
    sentence = ANSWERS.get(name, f"Head {{cell}} has the {about.first} {about.short.lower()}: {{value}}.")
    chance = cached.columns(run, "chance")
    even = f"Uniform attention: {about.show(chance[name][chance['layer'].index(best[0])])}. " if name in chance else ""
    hint = even + cached.glossary(about.term)
    screen.answer(sentence.format(cell=spelled(*best), value=about.show(value)), hint, scope)


def _more(inspected: dict, table: dict) -> None:
    """What of a text is read, and other statistics."""
    with st.popover("More", icon=":material/tune:"):
        titles = {name: about.title for name, about in offered(table).items()}
        fields.choose("Statistic", titles, "statistic")
        st.toggle("Leave out the first token", key="without_first", help=cached.glossary("without the first token"))
        if inspected["windows"] > 1 or st.session_state["long_text"] == "first":
            label = f"The model reads {inspected['max_positions']:,} tokens at once"
            fields.switch(label, LONG, "long_text")
