"""Attention heads: what does each head read?"""

import streamlit as st

from analysis.commands.heads import Statistics
from app import cached
from app.heads import drawers, finder, many_texts, one_head, without
from app.ui import foot, widgets
from app.ui.reading import reading
from app.ui.tabs import drawer


def show() -> None:
    """The map of all heads, the one that is open, and what is asked about it."""
    run, tokens = reading(
        "What does each head read?",
        "Exact statistics of dense attention, every head and every token, at any length; nothing is sampled",
        Statistics,
        "Reading the text with every head",
        lambda inspected: {"without_first": st.session_state["without_first"]},
        shared=(),
        draw=finder.so_far,
    )
    widgets.prose(run.numbers["sentence"])
    finder.controls()
    table = cached.columns(run, "heads")
    names = drawers.known_names()
    layer, head = finder.overview(run, table, names)
    finder.numerics_badge(run)
    widgets.notes(run)
    foot.found(layer=layer, head=head, budget_cells=str(layer * (max(table["head"]) + 1) + head))

    st.header(f"Head {head} of layer {layer}", anchor=False, help=cached.glossary("attention head"))
    finder.step_buttons(table, layer, head)
    own = None
    with widgets.guarded():
        own = one_head.show(table, tokens, layer, head)
    drawer(
        "alike",
        lambda: drawers.alike(table, tokens, layer, head, names),
        title="Which heads read like this one?",
        icon=":material/join_inner:",
    )
    drawer(
        "named",
        lambda: drawers.named(table, layer, head),
        title="What are the heads called?",
        icon=":material/badge:",
    )
    drawer(
        "over_texts",
        lambda: many_texts.show(tokens, layer, head),
        ["heads_corpus"],
        title="What does this head read in many texts?",
        icon=":material/library_books:",
    )
    drawer(
        "without",
        lambda: without.show(tokens, layer, head),
        ["without_by"],
        title="What is lost without a head?",
        icon=":material/content_cut:",
    )
    drawer("heads_evidence", drawers.evidence)
    if own is not None:
        one_head.cross(own)
