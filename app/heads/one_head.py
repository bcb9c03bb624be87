"""What one head reads: its text, how far back, its pattern and an exact tile of it."""

from typing import Any

import streamlit as st

from analysis.commands.heads import Head, HeadTokens
from analysis.runs import Run
from app import cached
from app.heads import head_charts, painted_weights, scope
from app.heads.head_statistics import spelled
from app.selection import state
from app.ui import asking, packed, painted, plots, tables, widgets

# Tokens of an exact tile, and cells of a pattern, on each side.
SIDE = 256
# Tokens back from which a place counts as far, and how many of the strongest are offered.
FAR, PLACES = 128, 3
KEYS = {
    "position": tables.Column("token", "whole", help="its place in the text"),
    "piece": tables.Column("key", "token"),
    "word": tables.Column("word"),
    "distance": tables.Column("tokens back", "whole", help=cached.glossary("distance")),
    "attention": tables.Column("attention", "share", full=1.0, help=cached.glossary("attention mass")),
}


# --- on the text ------------------------------------------------------------------------------------------------------


def strongest(run: Run) -> str:
    """What the query in use reads most, in a sentence."""
    numbers, keys = run.numbers, cached.columns(run, "keys")
    words, name = cached.columns(run, "tokens")["word"], spelled(numbers["layer"], numbers["head"])
    reader = words[numbers["offset"] + numbers["query"]]
    if not keys["key"]:
        return f"From “{reader}”, head {name} has nothing to read without the first token."
    word, back, share = (keys[column][0] for column in ("word", "distance", "attention"))
    where = f"{back:,} tokens back" if back else "the token itself"
    return f"“{reader}” looks at “{word}”, {where}: {share:.0%} of its attention."


def text(run: Run, tokens: dict) -> None:
    """The tab: where the head fires most, what one token reads, and how far back the head reads."""
    numbers, query = run.numbers, run.numbers["query"]
    widgets.prose(strongest(run), "more")
    widgets.prose(f"{scope.spelled(run.request['part'], tokens)}.".capitalize(), "quiet")
    both = cached.store().find(_crossed(run))
    crossed = None
    if both is not None:
        _places(both, tokens["word"])
        arrays = {name: cached.array(both, name) for name in packed.PACKED}
        crossed = packed.crossing(both.numbers["offset"], **arrays)
    painted_weights.show(
        tokens,
        painted_weights.spread(cached.array(run, "row"), numbers["offset"], query, len(tokens["piece"])),
        numbers["offset"] + query,
        key="heads_text",
        identity=run.id + run.created,
        legend=f"read by head {spelled(numbers['layer'], numbers['head'])}",
        crossed=crossed,
        bare=True,
        on_token=lambda: state.choose(st.session_state, query=painted.clicked("heads_text", "token")),
    )
    distance(run, 0, f"head {spelled(numbers['layer'], numbers['head'])}")


def _places(both: Run, words: list[str]) -> None:
    """The strongest far reads of the window, each a button that goes there."""
    table, offset = cached.columns(both, "strongest"), both.numbers["offset"]
    rows = zip(table["given"], table["position"], table["key"], strict=True)
    far = sorted((row for row in rows if row[2] > offset and row[1] - row[2] >= FAR), reverse=True)[:PLACES]
    with st.container(horizontal=True, gap="small"):
        for place, (share, query, key) in enumerate(far):
            label = f"{widgets.plain(words[query])} → {widgets.plain(words[key])} {share:.0%}"
            look: dict[str, Any] = {"help": f"{query - key:,} tokens back", "type": "tertiary"}
            look |= {"on_click": state.choose, "args": (st.session_state,), "kwargs": {"query": query}}
            st.button(label, key=f"heads_place_{place}", **look)


def distance(run: Run, number: int, name: str) -> None:
    """How far back a head reads."""
    table = cached.columns(run, "distance")
    plots.draw(
        head_charts.distances(table, name), table, f"How far back, {name}", f"heads_distance_{number}", "distance"
    )


def _crossed(run: Run) -> HeadTokens:
    """What hovering marks: of the head, window and first token of a run of one head."""
    names = ("model", "text", "long_text", "layer", "head", "part", "without_first")
    return HeadTokens(**{name: run.request[name] for name in names})


def cross(run: Run) -> None:
    """Ask for what hovering marks, where the page was drawn without it."""
    asking.after(_crossed(run), "Looking what every token reads and who reads it", run.numbers["length"])


# --- pattern and tile -------------------------------------------------------------------------------------------------


def pattern(run: Run) -> None:
    """The tab: the pattern, the exact tile that was asked for, and the top keys of the query."""
    name = spelled(run.numbers["layer"], run.numbers["head"])
    drawn_pattern(run, "heads_pattern_0", f"Pattern, head {name}", box=True)
    _tile(run)
    _keys(run)


def _keys(run: Run) -> None:
    query, length, listed = run.numbers["query"], run.numbers["length"], cached.columns(run, "keys")

    def tile_of() -> None:
        row = painted.clicked("heads_keys", "row")
        if row is not None and row < len(listed["key"]) and length > SIDE:
            _open_tile(around(query, listed["key"][row], length))

    label = "Top keys of the query; choose one for the exact tile around it"
    plots.listed(KEYS, listed, "heads_keys", label, run.id, on_row=tile_of, height=280)


def drawn_pattern(run: Run, key: str, title: str, box: bool) -> None:
    """The pattern of a head; with `box`, of a long window a dragged rectangle asks for its exact tile."""
    numbers, masses = run.numbers, cached.array(run, "pattern")
    cell, offset = numbers["cell"], numbers["offset"]
    box = box and cell > 1
    figure = head_charts.pattern(masses, offset, offset, cell, offset + numbers["query"], box)
    listed = lambda: head_charts.pattern_numbers(masses, offset, offset, cell)  # noqa: E731 made only when asked for
    boxes = plots.draw(figure, listed, title, key, "attention pattern", select="box" if box else None)
    dragged = " Drag a rectangle to see its place exactly." if box else ""
    st.caption(f"{numbers['pooling']} Dotted: the query.{dragged}")
    if not box:
        return
    corner = None
    if boxes:
        down, across = (round((min(boxes[0][axis]) + max(boxes[0][axis])) / 2) - offset for axis in ("y", "x"))
        corner = around(down, across, numbers["length"])
    if corner != st.session_state.get("heads_box_taken"):
        st.session_state["heads_box_taken"] = corner
        if corner is not None:
            _open_tile(corner)
            st.rerun()


def around(query: int, key: int, length: int) -> str:
    """The exact tile around a query and a key of a window of `length` tokens, as it stands in the URL."""
    return ".".join(str(max(0, min(token - SIDE // 2, length - SIDE))) for token in (query, key))


def _open_tile(corner: str | None) -> None:
    state.choose(st.session_state, tile=corner)


def _tile(run: Run) -> None:
    """The exact tile that was asked for, with its place; nothing where every token has its own cell."""
    numbers, wanted = run.numbers, st.session_state["tile"]
    query, length, offset = numbers["query"], numbers["length"], numbers["offset"]
    if numbers["cell"] == 1:
        return
    best = cached.columns(run, "keys")["key"]
    corner = around(query, best[0] if best else query, length)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        label = "Exact tile around the query and its top key"
        st.button(label, key="tile_here", icon=":material/zoom_in:", on_click=_open_tile, args=(corner,))
        if wanted:
            st.button("Close the tile", key="tile_close", type="tertiary", on_click=_open_tile, args=(None,))
    if not wanted:
        return
    row, column = (int(start) for start in wanted.split("."))
    if max(row, column) >= length:
        widgets.settled("tile", [None], None)
        return
    rows, columns = ([start, min(start + SIDE, length)] for start in (row, column))
    exact = asking.ask(Head(**run.request | {"rows": rows, "columns": columns}), "Cutting the exact tile")
    masses = cached.array(exact, "tile")
    marked = offset + query if rows[0] <= query < rows[1] else None
    figure = head_charts.pattern(masses, offset + row, offset + column, 1, marked)
    listed = head_charts.pattern_numbers(masses, offset + row, offset + column, 1)
    spans = [f"{offset + first:,} to {offset + last - 1:,}" for first, last in (rows, columns)]
    plots.draw(figure, listed, f"Exact: queries {spans[0]}, keys {spans[1]}", "heads_tile", "attention pattern")
