"""Links: which far-apart tokens belong together."""

from typing import Any

import streamlit as st

from analysis.commands.groups import Pairs
from analysis.runs import Run
from app import cached
from app.pairs import pair_charts
from app.selection import state
from app.selection.look import PAIR_DISTANCES, PAIR_KINDS, PAIR_TOPS
from app.start import far, pair_list, screen
from app.start.screen import SHUFFLED
from app.ui import asking, other, painted, plots, tables, widgets
from app.ui.reading import rows_of
from app.ui.screen import answer
from app.ui.tabs import drawer

# Columns of the table of a second text or model.
BESIDE = ("query", "key", "kind", "attention", "distance")
MOST_BESIDE = 10  # its rows
FILTERS = ("distance", "top", "kind", "content")
NONE = "No link is left under these filters: lower the smallest distance, or release a filter."


def show() -> None:
    """All links of the text under the filters, and how much tokens of one group read each other against chance."""
    first, tokens = screen.read_text()
    run = _pairs(first, len(tokens["piece"]))
    answer(*_answer(run))
    screen.read_line(first, tokens)
    found, kind = pair_list.listed(run, tokens), st.session_state["kind"]
    listed = pair_list.of_kind(found, kind)
    paint, palette, legend = far.paint(first, tokens)
    tips = [("read from afar", [widgets.times_chance(value) for value in tokens["received"]])]
    look = screen.Look("pairs_text", paint, palette, legend, run.id, tips, tab="links", none=NONE)
    screen.show(first, tokens, listed, look)
    below = st.container()
    drawer("pairs_filters", _filters, FILTERS, "Filters", ":material/filter_alt:")
    details = lambda: _details(run, tokens, listed, found)  # noqa: E731  drawn where it is open
    drawer("pairs_more", details, ["pairs_beside"], "Details", ":material/table_chart:")
    widgets.notes(run)
    with below, widgets.guarded():
        screen.measure()


def _pairs(first: Run, tokens: int) -> Run:
    far_apart = _distances()
    widgets.settled("distance", far_apart, 128 if 128 in far_apart else far_apart[-1])
    for name, options in _cells().items():
        widgets.settled(name, [None, *options], None)
    chosen = {name: st.session_state[name] for name in ("top", "layer", "group", "head", "content")}
    filters = {"min_distance": st.session_state["distance"]} | chosen | screen.same_windows(first)
    request = cached.request(Pairs, **state.study_args(st.session_state, "router", **filters))
    return asking.in_parts(request, {"shuffled": False}, "Looking for far pairs", SHUFFLED, tokens)


def _distances() -> list[int]:
    most = asking.card(st.session_state["model"])["max_positions"]
    return [distance for distance in PAIR_DISTANCES if distance < most]


def _cells() -> dict[str, list[int]]:
    """The layers and heads that pairs may be narrowed to."""
    model = st.session_state["model"]
    return {"layer": asking.layers(model), "head": list(range(asking.card(model)["heads"]))}


def _answer(run: Run) -> tuple[str, str]:
    """The finding, and its controls."""
    table = cached.columns(run, "controls")
    lifts = {}
    for arm in dict.fromkeys(table["arm"]):
        rows = rows_of(table, arm=arm)
        pairs, mass = (sum(value or 0.0 for value in rows[name]) for name in ("pairs_share", "mass_share"))
        if pairs:
            lifts[arm] = mass / pairs
    if "this router" not in lifts:
        return "No two tokens of one group are that far apart.", run.numbers["sentence"]
    beside = ", ".join(f"{arm} {lift:.2f}" for arm, lift in lifts.items() if arm != "this router")
    sentence = f"Far apart, tokens of one group read each other {lifts['this router']:.1f} times chance."
    return (
        sentence,
        f"Attention held by far pairs of one group against their share of far pairs. Also: {beside}.",
    )


def _filters() -> None:
    everything: dict[str, Any] = {"index": None, "placeholder": "all"}
    kind, about = cached.glossary("kind of a pair"), cached.glossary("distance")
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.select_slider("Smallest distance, tokens", _distances(), key="distance", width=210, help=about)
        for name, options in _cells().items():
            st.selectbox(name.capitalize(), options, key=name, width=96, **everything)
        st.number_input("Group", 0, 999, None, placeholder="all", key="group", width=96)
        st.selectbox("Links", list(PAIR_TOPS), key="top", width=90)
        st.selectbox("Kind", PAIR_KINDS, key="kind", width=150, help=kind, **everything)
        st.toggle("Content words only", key="content", help=cached.glossary("content word"))


def _details(run: Run, tokens: dict, listed: dict, found: dict) -> None:
    """The links as a table and where they lie, what groups draw against chance, and another text or model."""
    keys = pair_list.keys_of(listed)
    row, kind, count = pair_list.open_row(keys), st.session_state["kind"], len(found["kind"])
    title = f"The {count} strongest pairs" if kind is None else f"{len(keys)} of the {count} strongest pairs: {kind}"
    if row is not None:
        _places(listed, keys, row, title, run.id, len(tokens["word"]))
    with st.grid(2, min_column_width=420, gap="large"):
        pair_charts.lift_chart(run, "pairs_lift", st.session_state["layer"])
        pair_charts.mass_chart(run)
    widgets.router_badge(run.numbers["router"])
    whole = {"layer": None, "head": None, "group": None}
    other.beside("pairs_beside", run, tokens, Pairs, "Looking for far pairs", _second, **whole)
    widgets.source(run)


def _places(listed: dict, keys: list[str], row: int, title: str, identity: str, size: int) -> None:
    """The pairs as a table, and where they lie in the text; one of them is chosen in either."""
    st.subheader(title, anchor=False, help=cached.glossary("long-range pair"))
    tables.table(
        pair_list.COLUMNS,
        listed,
        key="pairs_table",
        identity=identity,
        label="Pairs, strongest first; choose one to read both places",
        selected=row,
        height=330,
        on_row=lambda: pair_list.choose_row(keys, painted.clicked("pairs_table", "row")),
    )
    drawn = pair_charts.places(listed, size, row)
    points = plots.draw(drawn, listed, "Where they are", "pairs_scatter", "distance", select="points")
    # A click seen before does not override a later choice.
    clicked = points[0]["customdata"] if points else None
    clicked = clicked[0] if isinstance(clicked, list) else clicked
    if clicked != st.session_state.get("pairs_point"):
        st.session_state["pairs_point"] = clicked
        if clicked is not None:
            pair_list.choose_row(keys, int(clicked))
            st.rerun()


def _second(run: Run, tokens: dict, place: int, runs: list[Run]) -> None:
    """One side of two texts or models beside each other, under the same filters and on one scale."""
    widgets.prose(run.numbers["sentence"], "more")
    listed = pair_list.of_kind(pair_list.listed(run, tokens), st.session_state["kind"])
    first = {name: listed[name][:MOST_BESIDE] for name in BESIDE}
    columns = {name: pair_list.COLUMNS[name] for name in BESIDE}
    tables.table(columns, first, key=f"pairs_beside_{place}", identity=run.id, label="Its strongest pairs", height=380)
    top = max(max(cached.columns(each, "controls")["lift"], default=1.0) for each in runs)
    pair_charts.lift_chart(run, f"pairs_beside_lift_{place}", None, top)
