"""Long-range pairs: which far-apart tokens belong together?"""

from typing import Any

import streamlit as st

from analysis.commands.groups import Pairs
from analysis.runs import Run
from app import cached
from app.pairs import pair_charts, pair_list
from app.selection.look import PAIR_DISTANCES, PAIR_KINDS, PAIR_TOPS
from app.ui import asking, other, painted, plots, tables, widgets
from app.ui.reading import reading

# Columns of the table of a second text or model.
BESIDE = ("query", "key", "kind", "attention", "distance")
MOST_BESIDE = 10  # its rows


def controls(inspected: dict) -> dict:
    """The filters; returns the arguments they stand for."""
    card = asking.card(st.session_state["model"])
    everything: dict[str, Any] = {"index": None, "placeholder": "all"}
    far = [distance for distance in PAIR_DISTANCES if distance < card["max_positions"]]
    widgets.settled("distance", far, 128 if 128 in far else far[-1])
    kind, about = cached.glossary("kind of a pair"), cached.glossary("distance")
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.select_slider("Smallest distance, tokens", far, key="distance", width=210, help=about)
        for name in ("layer", "head"):
            offered = list(range(card[f"{name}s"]))
            widgets.settled(name, [None, *offered], None)
            st.selectbox(name.capitalize(), offered, key=name, width=96, **everything)
        st.number_input("Group", 0, 999, None, placeholder="all", key="group", width=96)
        st.selectbox("Pairs", list(PAIR_TOPS), key="top", width=90)
        st.selectbox("Kind", PAIR_KINDS, key="kind", width=150, help=kind, **everything)
        st.toggle("Content words only", key="content", help=cached.glossary("content word"))
    chosen = {name: st.session_state[name] for name in ("top", "layer", "group", "head", "content")}
    return {"min_distance": st.session_state["distance"]} | chosen


def second(run: Run, tokens: dict, place: int, runs: list[Run]) -> None:
    """One side of two texts or models beside each other, under the same filters and on one scale."""
    widgets.prose(run.numbers["sentence"], "more")
    listed = pair_list.of_kind(pair_list.listed(run, tokens), st.session_state["kind"])
    first = {name: listed[name][:MOST_BESIDE] for name in BESIDE}
    columns = {name: pair_list.COLUMNS[name] for name in BESIDE}
    tables.table(columns, first, key=f"pairs_beside_{place}", identity=run.id, label="Its strongest pairs", height=380)
    top = max(max(cached.columns(each, "controls")["lift"], default=1.0) for each in runs)
    pair_charts.lift_chart(run, f"pairs_beside_lift_{place}", None, top)


def places(tokens: dict, listed: dict, keys: list[str], row: int, title: str, identity: str) -> None:
    """The pairs as a list, and where they lie in the text; one of them is chosen in either."""
    with st.grid(2, min_column_width=420, gap="large"):
        with st.container():
            st.subheader(title, anchor=False, help=cached.glossary("long-range pair"))
            tables.table(
                pair_list.COLUMNS,
                listed,
                key="pairs_table",
                identity=identity,
                label="Pairs, strongest first; choose one to read both places",
                selected=row,
                on_row=lambda: pair_list.choose_row(keys, painted.clicked("pairs_table", "row")),
            )
            st.caption("Click a row, or use the arrow keys, to open a pair.")
        with st.container():
            drawn = pair_charts.places(listed, len(tokens["word"]), row)
            points = plots.draw(drawn, listed, "Where they are", "pairs_scatter", "distance", select="points")
            pair_list.take_point(points, keys)


def show() -> None:
    """The strongest far pairs under the filters, and what chance would give."""
    run, tokens = reading(
        "Which far-apart tokens belong together?",
        "Focus: same-group pairs over long distances, how much they attend to each other, and what chance would give",
        Pairs,
        "Looking for far pairs",
        controls,
        part={"shuffled": False},
    )
    widgets.prose(run.numbers["sentence"])
    found, kind = pair_list.listed(run, tokens), st.session_state["kind"]
    listed = pair_list.of_kind(found, kind)
    count = len(found["kind"])
    title = f"The {count} strongest pairs"
    if kind is not None:
        title = f"{len(listed['kind'])} of the {count} strongest pairs: {kind}"
    keys = pair_list.keys_of(listed)
    row = pair_list.open_row(keys)
    if row is None:
        st.info("No pair is left under these filters: lower the smallest distance, or release a filter.")
    else:
        pair_list.show(tokens, listed, row)
        places(tokens, listed, keys, row, title, run.id)
    with st.grid(2, min_column_width=420, gap="large"):
        pair_charts.lift_chart(run, "pairs_lift", st.session_state["layer"])
        pair_charts.mass_chart(run)
    widgets.router_badge(run.numbers["router"])
    widgets.notes(run)
    with widgets.guarded():
        whole = {"layer": None, "head": None, "group": None}
        other.beside("pairs_beside", run, tokens, Pairs, "Looking for far pairs", second, **whole)
