"""Long-range pairs: which far-apart tokens belong together?"""

import streamlit as st

from app import cached
from app.pairs import beside, charts, chosen as pairs
from app.selection.look import PAIR_DISTANCES, PAIR_KINDS, PAIR_TOPS
from app.ui import asking, painted, tables, widgets
from app.ui.reading import reading

KIND = cached.glossary("kind of a pair")


def controls(inspected: dict) -> dict:
    """The filters; returns the arguments they stand for."""
    card = asking.card(st.session_state["model"])
    far = [d for d in PAIR_DISTANCES if d < card["max_positions"]]
    widgets.settled("distance", far, 128 if 128 in far else far[-1])
    widgets.settled("layer", [None, *range(card["layers"])], None)
    widgets.settled("head", [None, *range(card["heads"])], None)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.select_slider("Smallest distance, tokens", far, key="distance", width=210, help=cached.glossary("distance"))
        st.selectbox("Layer", list(range(card["layers"])), index=None, placeholder="all", key="layer", width=96)
        st.selectbox("Head", list(range(card["heads"])), index=None, placeholder="all", key="head", width=96)
        st.number_input("Group", 0, 999, None, placeholder="all", key="group", width=96)
        st.selectbox("Pairs", list(PAIR_TOPS), key="top", width=90)
        st.selectbox("Kind", PAIR_KINDS, index=None, placeholder="all", key="kind", width=150, help=KIND)
        st.toggle("Content words only", key="content", help=cached.glossary("content word"))
    chosen = {name: st.session_state[name] for name in ("top", "layer", "group", "head", "content")}
    return {"min_distance": st.session_state["distance"]} | chosen


run, tokens = reading(
    "Which far-apart tokens belong together?",
    "Focus: same-group pairs over long distances, how much they attend to each other, and what chance would give",
    "pairs",
    "Looking for far pairs",
    controls,
    part={"shuffled": False},
)
widgets.prose(run.numbers["sentence"])
found, kind = pairs.listed(run, tokens), st.session_state["kind"]
listed = pairs.of_kind(found, kind)
title = f"The {len(found['kind'])} strongest pairs"
if kind is not None:
    title = f"{len(listed['kind'])} of the {len(found['kind'])} strongest pairs: {kind}"
keys = pairs.keys_of(listed)
row = pairs.open_row(keys)
if row is None:
    st.info("No pair is left under these filters: lower the smallest distance, or release a filter.")
else:
    pairs.show(tokens, listed, row)
    with st.grid(2, min_column_width=420, gap="large"):
        with st.container():
            st.subheader(title, anchor=False, help=cached.glossary("long-range pair"))
            tables.table(
                pairs.COLUMNS,
                listed,
                key="pairs_table",
                identity=run.id,
                label="Pairs, strongest first; choose one to read both places",
                selected=row,
                on_row=lambda: pairs.choose_row(keys, painted.clicked("pairs_table", "row")),
                height=470,
            )
            st.caption("Click a row, or use the arrow keys, to open a pair.")
        with st.container():
            points = widgets.chart(
                charts.pairs(listed, len(tokens["word"]), row),
                listed,
                title="Where they are",
                key="pairs_scatter",
                alt="Each pair at its query and key position",
                help=cached.glossary("distance"),
                select="points",
            )
            pairs.take_point(points, keys)

with st.grid(2, min_column_width=420, gap="large"):
    table = cached.columns(run, "controls")
    widgets.chart(
        charts.lift(table, st.session_state["layer"]),
        table,
        title="Attention of same-group pairs against chance",
        key="pairs_lift",
        alt="Lift of this router and of three controls in every layer",
        help=cached.glossary("lift"),
    )
    table = cached.columns(run, "distance")
    widgets.chart(
        charts.mass(table),
        table,
        title="Attention held by same-group pairs, by distance",
        key="pairs_mass",
        alt="Share of the attention against share of the pairs by distance",
        help=cached.glossary("attention mass"),
    )

widgets.router_badge(run.numbers["router"])
widgets.notes(run)
with widgets.guarded():
    beside.beside(run, tokens)
