"""One head: its pattern, an exact tile of it, what one query reads on the text, its distances and numbers."""

import streamlit as st

from analysis.runs import Run
from app import cached
from app.heads import charts, text as heads_text
from app.heads.words import STATISTICS
from app.selection import state
from app.ui import asking, painted, tables, widgets

CROSSED = "head-tokens"  # the verb behind what hovering marks
SIDE = 256  # tokens of an exact tile, and cells of a pattern, on each side
KEYS = {
    "position": tables.Column("token", "whole", help="its place in the text"),
    "piece": tables.Column("key", "token"),
    "word": tables.Column("word"),
    "distance": tables.Column("tokens back", "whole", help=cached.glossary("distance")),
    "attention": tables.Column("attention", "share", full=1.0, help=cached.glossary("attention mass")),
}


def place(tokens: dict) -> tuple[int, int | None]:
    """(window of the text, query in that window or None) from the token in use."""
    windows = tokens["window"]
    widgets.settled("query", [None, *range(len(windows))], None)
    token = st.session_state["query"]
    return (0, None) if token is None else (windows[token], token - windows.index(windows[token]))


def ask(layer: int, head: int, part: int, query: int | None, **overrides: str) -> Run:
    """One head on one window of the chosen text; `overrides`: another `text` or `model`."""
    args = {"layer": layer, "head": head, "part": part, "query": query}
    args = state.study_args(st.session_state, without_first=st.session_state["without_first"], **args) | overrides
    return asking.ask("head", args, f"Looking at head {head} of layer {layer}")


def pattern(run: Run, key: str, title: str, box: bool = False) -> None:
    """The pattern of a head; with `box`, of a long window a dragged rectangle asks for its exact tile."""
    numbers, rows = run.numbers, cached.array(run, "pattern")
    cell, offset = numbers["cell"], numbers["offset"]
    box = box and cell > 1
    boxes = widgets.chart(
        charts.pattern(rows, offset, offset, cell, offset + numbers["query"], box),
        lambda: charts.cells(rows, offset, offset, cell),
        title=title,
        key=key,
        alt="What every query gives to every key before it, logarithmic colour",
        help=cached.glossary("attention pattern"),
        select="box" if box else None,
    )
    caption = numbers["pooling"] + " Dotted: the query."
    st.caption(caption + (" Drag a rectangle to see its place exactly." if box else ""))
    if box:
        _take(boxes, numbers)


def _take(boxes: list[dict], numbers: dict) -> None:
    """A newly dragged rectangle becomes the exact tile around its middle."""
    corner = None
    if boxes:
        middle = [(min(boxes[0][axis]) + max(boxes[0][axis])) / 2 for axis in ("y", "x")]
        corner = around(*(round(value) - numbers["offset"] for value in middle), numbers["length"])
    if corner == st.session_state.get("heads_box_taken"):
        return
    st.session_state["heads_box_taken"] = corner
    if corner is not None:
        state.choose(st.session_state, tile=corner)
        st.rerun()


def around(query: int, key: int, length: int) -> str:
    """The exact tile around a query and a key of a window of `length` tokens, as it stands in the URL."""
    return ".".join(str(max(0, min(token - SIDE // 2, length - SIDE))) for token in (query, key))


def tile(run: Run) -> None:
    """The exact tile that was asked for, with its place; nothing where every token has its own cell."""
    numbers, wanted = run.numbers, st.session_state["tile"]
    length, offset = numbers["length"], numbers["offset"]
    if numbers["cell"] == 1:
        return
    best = cached.columns(run, "keys")["key"]
    corner = around(numbers["query"], best[0] if best else numbers["query"], length)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.button(
            "Exact tile around the query and its top key",
            key="tile_here",
            icon=":material/zoom_in:",
            on_click=lambda: state.choose(st.session_state, tile=corner),
        )
        if wanted:
            st.button(
                "Close the tile",
                key="tile_close",
                type="tertiary",
                on_click=lambda: state.choose(st.session_state, tile=None),
            )
    if not wanted:
        return
    row, column = (int(start) for start in wanted.split("."))
    if max(row, column) >= length:
        widgets.settled("tile", [None], None)
        return
    edges = [[start, min(start + SIDE, length)] for start in (row, column)]
    request = run.request | {"rows": edges[0], "columns": edges[1]}
    exact = asking.ask("head", request, "Cutting the exact tile")
    rows = cached.array(exact, "tile")
    inside = edges[0][0] <= numbers["query"] < edges[0][1]
    widgets.chart(
        charts.pattern(rows, offset + row, offset + column, 1, offset + numbers["query"] if inside else None),
        lambda: charts.cells(rows, offset + row, offset + column, 1),
        title=f"Exact: queries {_span(offset, edges[0])}, keys {_span(offset, edges[1])}",
        key="heads_tile",
        alt="What each query of the tile gives to each of its keys, token by token",
        help=cached.glossary("attention pattern"),
    )


def _span(offset: int, edges: list[int]) -> str:
    return f"{offset + edges[0]:,} to {offset + edges[1] - 1:,}"


def reads(run: Run, tokens: dict) -> None:
    """What the query reads: its top keys as a table, and the whole text painted by its attention."""
    numbers, listed = run.numbers, cached.columns(run, "keys")
    offset, query, length = numbers["offset"], numbers["query"], numbers["length"]
    both = cached.store().find(CROSSED, _crossed(run))
    st.subheader("What one token reads", anchor=False, help=cached.glossary("attention mass"))
    widgets.prose(numbers["sentence"], "more")
    if (count := tokens["window"][-1] + 1) > 1:
        window = run.request["part"] + 1
        widgets.prose(
            f"Window {window} of {count}: a token reads nothing of other windows. Click a token there to look there.",
            "quiet",
        )
    weights = heads_text.spread(cached.array(run, "row"), offset, query, len(tokens["piece"]))
    heads_text.show(
        tokens,
        weights,
        offset + query,
        key="heads_text",
        identity=run.id + run.created,
        legend=f"read from token {offset + query:,} by head {numbers['head']} of layer {numbers['layer']}",
        crossed=None if both is None else _packed(both),
        on_token=lambda: state.choose(st.session_state, query=painted.clicked("heads_text", "token")),
    )
    tables.table(
        KEYS,
        listed,
        key="heads_keys",
        identity=run.id,
        label="Top keys of the query; choose one for the exact tile around it",
        on_row=lambda: _tile_of(listed["key"], query, length, painted.clicked("heads_keys", "row")),
        height=280,
    )
    widgets.numbers(listed, "top-keys", "heads_keys_numbers")


def _crossed(run: Run) -> dict:
    """The request for what hovering marks: of the head, window and first token of a run of one head."""
    names = ("model", "text", "long_text", "layer", "head", "part", "without_first")
    return {name: run.request[name] for name in names}


def _packed(run: Run) -> dict:
    return painted.crossing(run.numbers["offset"], **{name: cached.array(run, name) for name in painted.PACKED})


def cross(run: Run) -> None:
    """Ask for what hovering marks, where the page was drawn without it."""
    asking.after(CROSSED, _crossed(run), "Looking what every token reads and who reads it", run.numbers["length"])


def _tile_of(keys: list[int], query: int, length: int, row: int | None) -> None:
    if row is not None and row < len(keys) and length > SIDE:
        state.choose(st.session_state, tile=around(query, keys[row], length))


def distances(run: Run, key: str, name: str, top: float) -> None:
    """How far back the head reads, beside reading all alike."""
    table = cached.columns(run, "distance")
    widgets.chart(
        charts.distances(table, name, top),
        table,
        title=f"How far back, {name}",
        key=key,
        alt="Share of the attention by distance, with uniform reading",
        help=cached.glossary("distance"),
    )


def top_share(*runs: Run) -> float:
    """The largest share of any distance, so that panels side by side have one scale."""
    return max(max(cached.columns(run, "distance")[side]) for run in runs for side in ("mass", "uniform"))


def numbers(named: dict[str, Run], tokens: dict, all_windows: dict) -> None:
    """The statistics of one or two heads in a window, the first one's of all windows
    (`all_windows`, its row of `statistics`)
    where there are several, and reading all alike."""
    st.subheader("In numbers", anchor=False, help=cached.glossary("chance level (uniform reading)"))
    values = {"statistic": [about.title for about in STATISTICS.values()]}
    first, count = next(iter(named)), tokens["window"][-1] + 1
    where = f"window {named[first].request['part'] + 1} of {count}" if count > 1 else "this text"
    columns = {"statistic": tables.Column(f"mean over the queries of {where}")}
    sides = {name: run.numbers["summary"] for name, run in named.items()}
    apart = len({(run.request["text"], run.request["model"]) for run in named.values()}) > 1
    for name, run in named.items():
        sides[f"all alike, {name}" if apart else "all alike"] = run.numbers["chance"]
    if count > 1:
        sides[f"{first}, all {count} windows"] = {key: cells[0] for key, cells in all_windows.items()}
    for name, statistics in sides.items():
        values[name] = [statistics[key] for key in STATISTICS]
        values[f"{name}, shown"] = [about.show(statistics[key]) for key, about in STATISTICS.items()]
        columns[name] = tables.Column(name, "number", words=f"{name}, shown")
    ids = ".".join(run.id for run in named.values())
    tables.table(columns, values, key="heads_numbers", identity=ids, label="Statistics of the head")
    widgets.numbers({name: values[name] for name in columns}, "head", "heads_numbers_csv")
