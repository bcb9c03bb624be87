"""The map of all heads and the finder: which head to look at."""

from collections.abc import Mapping, Sequence
from zlib import crc32

import streamlit as st

from analysis.runs import Run
from app import cached
from app.heads import charts
from app.heads.words import LETTERS, STATISTICS, letters, ranked
from app.selection import state
from app.selection.look import FINDERS
from app.ui import asking, fields, painted, tables, widgets

Names = Mapping[tuple[int, int], Sequence[str]]  # (layer, head) -> its names
CHANCE = "chance level (uniform reading)"


def statistics(tokens: int) -> Run:
    """The statistics of every head on the chosen text, with or without the first token."""
    args = state.study_args(st.session_state, without_first=st.session_state["without_first"])
    return asking.ask("statistics", args, "Reading the text with every head", tokens)


def so_far(table: dict) -> None:
    """The map while the text is read: the heads of the layers that are done."""
    about = STATISTICS[st.session_state["statistic"]]
    values = table[st.session_state["statistic"]]
    drawn = crc32(repr(table).encode())  # a second window changes the numbers of layers that were drawn before
    widgets.chart(
        charts.heads(table, values, about, -1, -1),
        table,
        title=f"{about.title.split(',')[0]} of every head, so far",
        key=f"heads_so_far_{drawn}",
        alt=f"{about.title} in the layers that are read so far",
    )


def controls() -> None:
    """What is looked at on the map."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        st.selectbox(
            "Statistic",
            list(STATISTICS),
            format_func=lambda name: STATISTICS[name].title,
            key="statistic",
            width=250,
        )
        st.toggle(
            "Leave out the first token",
            key="without_first",
            help=cached.glossary("without the first token"),
        )


def chosen_head(table: dict, listed: Sequence[int]) -> tuple[int, int]:
    """(layer, head) in use: the shared selection, else the first head of the finder."""
    for name in ("layer", "head"):
        widgets.settled(name, [None, *sorted(set(table[name]))], None)
    layer, head = st.session_state["layer"], st.session_state["head"]
    cells = [(table["layer"][row], table["head"][row]) for row in listed or [0]]
    fitting = [cell for cell in cells if layer in (None, cell[0]) and head in (None, cell[1])]
    cell_chosen = (fitting or cells)[0]
    return cell_chosen[0] if layer is None else layer, cell_chosen[1] if head is None else head


def choose(layer: int, head: int) -> None:
    """Look at another head; an exact tile belongs to the old one's pattern and is closed."""
    state.choose(st.session_state, layer=layer, head=head, tile=None)


def overview(run: Run, table: dict, names: Names) -> tuple[int, int]:
    """The map beside the finder, with the `names` of heads that are known; returns the (layer, head) in use."""
    name = st.session_state["statistic"]
    about, values = STATISTICS[name], table[name]
    order = st.session_state["order"] or about.first
    order_of_heads = ranked(values, order, len(values))
    layer, head = chosen_head(table, order_of_heads)
    with st.grid(2, min_column_width=420, gap="large"):
        with st.container():
            st.segmented_control(
                "Shown as",
                ["map", "scatter"],
                key="heads_shown",
                format_func=str.capitalize,
                required=True,
                label_visibility="collapsed",
            )
            if st.session_state["heads_shown"] == "scatter":
                _scatter(table, name, (layer, head), names)
            else:
                _map(table, name, (layer, head), names)
            st.caption("Click a head to choose it." + _sink(run) + _letters(names))
        with st.container():
            _finder(run, table, name, order, order_of_heads, (layer, head), names)
    return layer, head


def _map(table: dict, name: str, now: tuple[int, int], names: Names) -> None:
    """Layer x head, one statistic in colour."""
    about = STATISTICS[name]
    _drawn(
        charts.heads(table, table[name], about, *now, names),
        table,
        "heads_map",
        about.title.split(",")[0] + " of every head",
        f"{about.title} in every layer and head, the chosen head framed",
        about.help,
    )


def _scatter(table: dict, name: str, now: tuple[int, int], names: Names) -> None:
    """The statistic in use against any other, a third one or the layer in colour."""
    titles = {"layer": "Layer"} | {key: about.title for key, about in STATISTICS.items()}
    with st.container(horizontal=True, gap="small"):
        st.selectbox("Across", list(STATISTICS), format_func=titles.get, key="heads_across", width=205)
        st.selectbox("Colour", list(titles), format_func=titles.get, key="heads_colour", width=205)
    across, colour = st.session_state["heads_across"], st.session_state["heads_colour"]
    _drawn(
        charts.scatter(table, across, name, colour, now, names),
        table,
        "heads_scatter",
        f"{titles[name].split(',')[0]} against {titles[across].split(',')[0].lower()}",
        f"{titles[name]} of every head against {titles[across]}, {titles[colour]} in colour",
        STATISTICS[across].help,
    )


def _drawn(figure: dict, table: dict, key: str, title: str, alt: str, help: str) -> None:
    """A chart of all heads; a click chooses one."""
    points = widgets.chart(figure, table, title=title, key=key, alt=alt, help=help, select="points")
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
    run: Run, table: dict, name: str, order: str, order_of_heads: list[int], now: tuple[int, int], names: Names
) -> None:
    about, chance = STATISTICS[name], cached.columns(run, "chance")
    st.subheader(f"Heads with the {order} values", anchor=False, help=about.help)
    widgets.prose(about.help, "quiet")
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        look = {"label_visibility": "collapsed", "required": True}
        fields.pick(st.segmented_control, "Order", ["highest", "lowest"], "order", order, **look)
        st.segmented_control("Rows", FINDERS, key="finder", **look)
    listed = order_of_heads[: st.session_state["finder"]]
    even = dict(zip(chance["layer"], chance[name], strict=True))
    values = {
        "layer": [table["layer"][row] for row in listed],
        "head": [table["head"][row] for row in listed],
        "label": [table["label"][row] for row in listed],
        "name": [", ".join(names.get((table["layer"][row], table["head"][row]), ())) for row in listed],
        "value": [table[name][row] for row in listed],
        "chance": [even[table["layer"][row]] for row in listed],
    }
    columns = {
        "layer": tables.Column("layer", "whole"),
        "head": tables.Column("head", "whole"),
        "label": tables.Column("label", help=cached.glossary("label of a head")),
        "value": about.column(),
        "chance": tables.Column("all alike", about.kind, about.digits, help=cached.glossary(CHANCE)),
        **({"name": tables.Column("name", help=cached.glossary("name of a head"))} if names else {}),
    }
    rows = list(zip(values["layer"], values["head"], strict=True))
    tables.table(
        columns,
        values,
        key="heads_finder",
        identity=f"{run.id}.{name}.{order}.{len(listed)}",
        label="Heads by this statistic; choose one to look at it",
        selected=rows.index(now) if now in rows else None,
        on_row=lambda: choose(*(painted.picked("heads_finder", rows) or now)),
        height=330,
    )
    widgets.numbers(values, f"finder-{name}", "heads_finder_numbers")


def step_buttons(table: dict, layer: int, head: int) -> None:
    """Previous and next head, layer by layer, with a key for each."""
    cells = sorted(zip(table["layer"], table["head"], strict=True))
    place = cells.index((layer, head))
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        for label, key, icon, step in (
            ("Previous head", "P", ":material/arrow_back:", -1),
            ("Next head", "N", ":material/arrow_forward:", 1),
        ):
            wanted = cells[(place + step) % len(cells)]
            name = f"heads_{'next' if step > 0 else 'previous'}"
            st.button(label, key=name, icon=icon, shortcut=key, on_click=choose, args=wanted)
        widgets.prose(f"head {place + 1:,} of {len(cells):,}", "quiet")
