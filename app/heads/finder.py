"""The map of all heads and the finder: which head to look at; how exact the scores are."""

from collections.abc import Sequence
from zlib import crc32

import streamlit as st

from analysis.runs import Run
from app import cached
from app.heads import head_charts
from app.heads.head_statistics import LETTERS, STATISTICS, Names, cells_of, letters, ranked
from app.selection import state
from app.selection.look import FINDERS
from app.ui import fields, painted, plots, tables, widgets

CHANCE = "chance level (uniform reading)"
# Of a weight: more than this is no rounding any more.
WIDE = 0.01
TERM = "numerics of the scores"


def so_far(table: dict) -> None:
    """The map while the text is read: the heads of the layers that are done."""
    name = st.session_state["statistic"]
    about = STATISTICS[name]
    # A second window changes the numbers of layers that were drawn before.
    drawn = crc32(repr(table).encode())
    figure = head_charts.statistic_map(table, table[name], about, (-1, -1))
    plots.draw(figure, table, f"{about.short} of every head, so far", f"heads_so_far_{drawn}")


def controls() -> None:
    """What is looked at on the map."""
    titles = {name: about.title for name, about in STATISTICS.items()}
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        st.selectbox("Statistic", list(titles), format_func=titles.get, key="statistic", width=250)
        help = cached.glossary("without the first token")
        st.toggle("Leave out the first token", key="without_first", help=help)


def choose(layer: int, head: int) -> None:
    """Look at another head; an exact tile belongs to the old one's pattern and is closed."""
    state.choose(st.session_state, layer=layer, head=head, tile=None)


def overview(run: Run, table: dict, names: Names) -> tuple[int, int]:
    """The map beside the finder, with the `names` of heads that are known; returns the (layer, head) in use."""
    name = st.session_state["statistic"]
    order = st.session_state["order"] or STATISTICS[name].first
    listed = ranked(table[name], order)
    now = _chosen_head(table, listed)
    with st.grid(2, min_column_width=420, gap="large"):
        with st.container():
            look = {"format_func": str.capitalize, "required": True, "label_visibility": "collapsed"}
            st.segmented_control("Shown as", ["map", "scatter"], key="heads_shown", **look)
            if st.session_state["heads_shown"] == "scatter":
                _scatter(table, name, now, names)
            else:
                figure = head_charts.statistic_map(table, table[name], STATISTICS[name], now, names)
                _clicked(figure, table, "heads_map", f"{STATISTICS[name].short} of every head", name)
            st.caption("Click a head to choose it." + _sink(run) + _letters(names))
        with st.container():
            _finder(run, table, name, order, listed, now, names)
    return now


def _chosen_head(table: dict, listed: Sequence[int]) -> tuple[int, int]:
    """(layer, head) in use: the shared selection, else the first head of the finder."""
    for name in ("layer", "head"):
        widgets.settled(name, [None, *sorted(set(table[name]))], None)
    layer, head = st.session_state["layer"], st.session_state["head"]
    cells = [(table["layer"][row], table["head"][row]) for row in listed or [0]]
    fitting = [cell for cell in cells if layer in (None, cell[0]) and head in (None, cell[1])]
    first = (fitting or cells)[0]
    return first[0] if layer is None else layer, first[1] if head is None else head


def _scatter(table: dict, name: str, now: tuple[int, int], names: Names) -> None:
    """The statistic in use against any other, a third one or the layer in colour."""
    titles = {"layer": "Layer"} | {key: about.title for key, about in STATISTICS.items()}
    with st.container(horizontal=True, gap="small"):
        st.selectbox("Across", list(STATISTICS), format_func=titles.get, key="heads_across", width=205)
        st.selectbox("Colour", list(titles), format_func=titles.get, key="heads_colour", width=205)
    across, colour = st.session_state["heads_across"], st.session_state["heads_colour"]
    title = f"{STATISTICS[name].short} against {STATISTICS[across].short.lower()}"
    _clicked(head_charts.scatter(table, across, name, colour, now, names), table, "heads_scatter", title, across)


def _clicked(figure: dict, table: dict, key: str, title: str, statistic: str) -> None:
    """A chart of all heads; a click chooses one."""
    points = plots.draw(figure, table, title, key, STATISTICS[statistic].term, select="points")
    if cell := widgets.new_cell(points, key):
        choose(*cell)
        st.rerun()


def _sink(run: Run) -> str:
    if run.numbers["without_first"]:
        return " The first token of each window is left out and the rest renormalised to 100%."
    return " The first token counts like any other."


def _letters(names: Names) -> str:
    used = {letter for some in names.values() for letter in letters(some)}
    listed = ", ".join(f"{letter} {name}" for name, letter in LETTERS.items() if letter in used)
    return f" Letters are names: {listed}." if listed else ""


def _finder(
    run: Run, table: dict, name: str, order: str, ranking: list[int], now: tuple[int, int], names: Names
) -> None:
    about, chance = STATISTICS[name], cached.columns(run, "chance")
    st.subheader(f"Heads with the {order} values", anchor=False, help=cached.glossary(about.term))
    widgets.prose(cached.glossary(about.term), "quiet")
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        look = {"label_visibility": "collapsed", "required": True}
        fields.pick(st.segmented_control, "Order", ["highest", "lowest"], "order", order, **look)
        st.segmented_control("Rows", FINDERS, key="finder", **look)
    listed = ranking[: st.session_state["finder"]]
    even = dict(zip(chance["layer"], chance[name], strict=True))
    values = {column: [table[column][row] for row in listed] for column in ("layer", "head", "label", name)}
    values["chance"] = [even[layer] for layer in values["layer"]]
    cells = cells_of(values)
    columns = {
        "layer": tables.Column("layer", "whole"),
        "head": tables.Column("head", "whole"),
        "label": tables.Column("label", help=cached.glossary("label of a head")),
        name: about.column,
        "chance": tables.Column("all alike", about.kind, about.digits, help=cached.glossary(CHANCE)),
    }
    if names:
        values["name"] = [", ".join(names.get(cell, ())) for cell in cells]
        columns["name"] = tables.Column("name", help=cached.glossary("name of a head"))
    head_table(
        columns, values, "heads_finder", "Heads by this statistic", f"{run.id}.{name}.{order}.{len(listed)}", now
    )


def head_table(
    columns: dict[str, tables.Column], table: dict, key: str, label: str, identity: str, now: tuple[int, int] | None
) -> None:
    """A table of heads in which a row chooses its head; that of the head `now` in use is marked."""
    cells = cells_of(table)

    def on_row() -> None:
        if cell := painted.picked(key, cells):
            choose(*cell)

    selected = cells.index(now) if now in cells else None
    label = f"{label}; choose one to look at it"
    plots.listed(columns, table, key, label, identity, selected=selected, on_row=on_row, height=330)


def step_buttons(table: dict, layer: int, head: int) -> None:
    """Previous and next head, layer by layer, with a key for each."""
    cells = sorted(cells_of(table))
    place = cells.index((layer, head))
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        for way, icon, step in (("previous", "back", -1), ("next", "forward", 1)):
            wanted = cells[(place + step) % len(cells)]
            look = {"icon": f":material/arrow_{icon}:", "shortcut": way[0].upper()}
            st.button(f"{way.capitalize()} head", key=f"heads_{way}", on_click=choose, args=wanted, **look)
        widgets.prose(f"head {place + 1:,} of {len(cells):,}", "quiet")


def numerics_badge(run: Run) -> None:
    """How large and how exact the scores are, in the worst layer."""
    precision = run.numbers["numerics"]
    wide = precision["own_difference"] > WIDE
    label = f"scores up to {precision['largest_score']:,.1f}, weights within {precision['difference']:.0e} of float64"
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.badge(label, icon=":material/calculate:", color="orange" if wide else "green", help=cached.glossary(TERM))
    if wide:
        widgets.prose(
            f"In {precision['dtype']}, the model's own type, a weight would be off by up to "
            f"{precision['own_difference']:.1%}: its scores are computed in float32 here.",
            "note",
        )
