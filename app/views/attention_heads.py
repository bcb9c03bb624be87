"""Attention heads: what does each head read?"""

import streamlit as st

from app import cached
from app.heads import alike, beside, corpus, evidence, finder, named, numerics, one as heads_one, without
from app.ui import onward, widgets
from app.ui.reading import reading, rows_of
from app.ui.tabs import drawer

run, tokens = reading(
    "What does each head read?",
    "Exact statistics of dense attention, every head and every token, at any length; nothing is sampled",
    "statistics",
    "Reading the text with every head",
    lambda inspected: {"without_first": st.session_state["without_first"]},
    shared=(),
    draw=finder.so_far,
)
widgets.prose(run.numbers["sentence"])
finder.controls()
table = cached.columns(run, "heads")
names = named.badges(named.stored())
layer, head = finder.overview(run, table, names)
numerics.badge(run)
widgets.notes(run)
onward.found(layer=layer, head=head, budget_cells=str(layer * (max(table["head"]) + 1) + head))

st.header(f"Head {head} of layer {layer}", anchor=False, help=cached.glossary("attention head"))
finder.step_buttons(table, layer, head)
own = None
with widgets.guarded():
    part, query = heads_one.place(tokens)
    own = heads_one.ask(layer, head, part, query)
    heads_one.reads(own, tokens)
    other = beside.second(table, tokens, own)
    name = f"head {head} of layer {layer}"
    if other is not None and st.session_state["beside"] == "text":
        name = cached.texts()[st.session_state["text"]]
    elif other is not None and st.session_state["beside"] == "model":
        name = f"{st.session_state['model']}, layer {layer}, head {head}"
    shown = {name: own} | ({other[0]: other[1]} if other else {})
    top = heads_one.top_share(*shown.values())
    with st.grid(2, min_column_width=420, gap="large"):
        for place, (title, one) in enumerate(shown.items()):
            with st.container():
                heads_one.pattern(one, f"heads_pattern_{place}", f"Pattern, {title}", box=place == 0)
        for place, (title, one) in enumerate(shown.items()):
            with st.container():
                heads_one.distances(one, f"heads_distance_{place}", title, top)
    heads_one.tile(own)
    heads_one.numbers(shown, tokens, rows_of(table, layer=layer, head=head))
drawer(
    "alike",
    lambda: alike.show(table, tokens, layer, head, names),
    title="Which heads read like this one?",
    icon=":material/join_inner:",
)
drawer(
    "named",
    lambda: named.show(table, layer, head),
    title="What are the heads called?",
    icon=":material/badge:",
)
drawer(
    "over_texts",
    lambda: corpus.show(tokens, layer, head),
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
numerics.layers(run)
drawer("heads_evidence", evidence.show)
if own is not None:
    heads_one.cross(own)
