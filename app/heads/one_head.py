"""One head: its pattern, an exact tile of it, what one query reads on the text, its distances and numbers; and a second
head, text or model beside it."""

from collections.abc import Mapping

import streamlit as st

from analysis.commands.heads import Head, HeadTokens
from analysis.runs import Run
from app import cached
from app.heads import head_charts, painted_weights
from app.heads.head_statistics import STATISTICS, cells_of, spelled
from app.selection import state
from app.ui import asking, fields, other, painted, plots, tables, widgets

# Tokens of an exact tile, and cells of a pattern, on each side.
SIDE = 256
KEYS = {
    "position": tables.Column("token", "whole", help="its place in the text"),
    "piece": tables.Column("key", "token"),
    "word": tables.Column("word"),
    "distance": tables.Column("tokens back", "whole", help=cached.glossary("distance")),
    "attention": tables.Column("attention", "share", full=1.0, help=cached.glossary("attention mass")),
}
BESIDE = {"head": "Another head", "text": "Another text", "model": "Another model"}


def place(tokens: dict) -> tuple[int, int | None]:
    """(window of the text, query in that window or None) from the token in use."""
    windows = tokens["window"]
    widgets.settled("query", [None, *range(len(windows))], None)
    token = st.session_state["query"]
    return (0, None) if token is None else (windows[token], token - windows.index(windows[token]))


def ask(layer: int, head: int, part: int, query: int | None, **overrides: str) -> Run:
    """One head on one window of the chosen text; `overrides`: another `text` or `model`."""
    args = {"layer": layer, "head": head, "part": part, "query": query}
    args |= {"without_first": st.session_state["without_first"]}
    request = Head(**state.study_args(st.session_state, **args) | overrides)
    return asking.ask(request, f"Looking at head {head} of layer {layer}")


def show(table: dict, tokens: dict, layer: int, head: int) -> Run:
    """Everything about one head, and what stands beside it; `table`: the statistics of all heads."""
    run = ask(layer, head, *place(tokens))
    _reads(run, tokens)
    name, sides = f"head {head} of layer {layer}", {}
    if second := _second(table, tokens, run):
        beside = st.session_state["beside"]
        name = cached.texts()[st.session_state["text"]] if beside == "text" else name
        name = f"{st.session_state['model']}, {spelled(layer, head)}" if beside == "model" else name
        sides = dict([second])
    sides = {name: run} | sides
    # One scale for panels side by side.
    top = max(max(cached.columns(side, "distance")[end]) for side in sides.values() for end in ("mass", "uniform"))
    with st.grid(2, min_column_width=420, gap="large"):
        for number, (title, side) in enumerate(sides.items()):
            with st.container():
                _pattern(side, f"heads_pattern_{number}", f"Pattern, {title}", box=number == 0)
        for number, (title, side) in enumerate(sides.items()):
            distance = cached.columns(side, "distance")
            figure = head_charts.distances(distance, title, top)
            with st.container():
                plots.draw(figure, distance, f"How far back, {title}", f"heads_distance_{number}", "distance")
    _tile(run)
    _numbers(sides, tokens, table, (layer, head))
    return run


# --- a second one -----------------------------------------------------------------------------------------------------


def _second(table: dict, tokens: dict, first: Run) -> tuple[str, Run] | None:
    """Ask what stands beside the head of the run `first`; (its name, its run), or None when nothing does."""
    layer, head, part = (first.request[name] for name in ("layer", "head", "part"))
    cells = sorted(cells_of(table))
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        beside = other.choice("beside", BESIDE)
        if beside == "head":
            cell = _second_head(cells, cells[(cells.index((layer, head)) + 1) % len(cells)])
            name, run = spelled(*cell), ask(*cell, part, first.request["query"])
        elif beside == "text":
            text = other.text()
            name, run = cached.texts()[text], ask(layer, head, 0, None, text=text)
            if name == cached.texts()[st.session_state["text"]]:
                name = f"{name}, the other"
        elif beside == "model" and (model := other.model()):
            name, run = _of_model(model, tokens, first)
        else:
            return None
    widgets.prose(run.numbers["sentence"], "quiet")
    return name, run


def _of_model(model: str, tokens: dict, first: Run) -> tuple[str, Run]:
    """A head of another model on the same text, from the token at the same place."""
    card = asking.card(model)
    cells = [(layer, head) for layer in range(card["layers"]) for head in range(card["heads"])]
    near = min(first.request["layer"], card["layers"] - 1), min(first.request["head"], card["heads"] - 1)
    cell = _second_head(cells, near)
    theirs = cached.columns(ask(*cell, 0, None, model=model), "tokens")
    position = other.aligned(tokens, first.numbers["offset"] + first.numbers["query"], theirs)
    part = theirs["window"][position]
    query = position - theirs["window"].index(part)
    return f"{model}, {spelled(*cell)}", ask(*cell, part, query, model=model)


def _second_head(cells: list[tuple[int, int]], usual: tuple[int, int]) -> tuple[int, int]:
    """Which of `cells` stands beside: `usual` unless another was chosen."""
    names = {f"{layer}.{head}": (layer, head) for layer, head in cells}
    widgets.settled("other_head", [None, *names], None)
    default = st.session_state["other_head"] or "{}.{}".format(*usual)
    look = {"width": 220, "format_func": lambda name: spelled(*names[name])}
    return names[fields.pick(st.selectbox, "Second head", list(names), "other_head", default, **look)]


# --- pattern and tile -------------------------------------------------------------------------------------------------


def _pattern(run: Run, key: str, title: str, box: bool) -> None:
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
        middle = [(min(boxes[0][axis]) + max(boxes[0][axis])) / 2 for axis in ("y", "x")]
        corner = around(*(round(value) - offset for value in middle), numbers["length"])
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
        label, look = "Exact tile around the query and its top key", {"icon": ":material/zoom_in:"}
        st.button(label, key="tile_here", on_click=_open_tile, args=(corner,), **look)
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


# --- on the text ------------------------------------------------------------------------------------------------------


def _reads(run: Run, tokens: dict) -> None:
    """What the query reads: its top keys as a table, and the whole text painted by its attention."""
    numbers, listed = run.numbers, cached.columns(run, "keys")
    offset, query, length = numbers["offset"], numbers["query"], numbers["length"]
    st.subheader("What one token reads", anchor=False, help=cached.glossary("attention mass"))
    widgets.prose(numbers["sentence"], "more")
    if (count := tokens["window"][-1] + 1) > 1:
        window = f"Window {run.request['part'] + 1} of {count}"
        widgets.prose(f"{window}: a token reads nothing of other windows. Click a token there to look there.", "quiet")
    both = cached.store().find(_crossed(run))
    crossed = both and {name: cached.array(both, name) for name in painted.PACKED}
    painted_weights.show(
        tokens,
        painted_weights.spread(cached.array(run, "row"), offset, query, len(tokens["piece"])),
        offset + query,
        key="heads_text",
        identity=run.id + run.created,
        legend=f"read from token {offset + query:,} by head {numbers['head']} of layer {numbers['layer']}",
        crossed=painted.crossing(both.numbers["offset"], **crossed) if crossed else None,
        on_token=lambda: state.choose(st.session_state, query=painted.clicked("heads_text", "token")),
    )

    def tile_of() -> None:
        row = painted.clicked("heads_keys", "row")
        if row is not None and row < len(listed["key"]) and length > SIDE:
            _open_tile(around(query, listed["key"][row], length))

    label = "Top keys of the query; choose one for the exact tile around it"
    plots.listed(KEYS, listed, "heads_keys", label, run.id, on_row=tile_of, height=280)


def _crossed(run: Run) -> HeadTokens:
    """What hovering marks: of the head, window and first token of a run of one head."""
    names = ("model", "text", "long_text", "layer", "head", "part", "without_first")
    return HeadTokens(**{name: run.request[name] for name in names})


def cross(run: Run) -> None:
    """Ask for what hovering marks, where the page was drawn without it."""
    asking.after(_crossed(run), "Looking what every token reads and who reads it", run.numbers["length"])


def _numbers(named: Mapping[str, Run], tokens: dict, table: dict, cell: tuple[int, int]) -> None:
    """The statistics of one or two heads in a window, the first one's of all windows where there are several, and
    reading all alike."""
    st.subheader("In numbers", anchor=False, help=cached.glossary("chance level (uniform reading)"))
    first, count = next(iter(named)), tokens["window"][-1] + 1
    where = f"window {named[first].request['part'] + 1} of {count}" if count > 1 else "this text"
    sides = {name: run.numbers["summary"] for name, run in named.items()}
    apart = len({(run.request["text"], run.request["model"]) for run in named.values()}) > 1
    for name, run in named.items():
        sides[f"all alike, {name}" if apart else "all alike"] = run.numbers["chance"]
    if count > 1:
        row = cells_of(table).index(cell)
        sides[f"{first}, all {count} windows"] = {name: table[name][row] for name in STATISTICS}
    columns = {"statistic": tables.Column(f"mean over the queries of {where}")}
    values = {"statistic": [about.title for about in STATISTICS.values()]}
    for name, summary in sides.items():
        shown = f"{name}, shown"
        columns[name] = tables.Column(name, "number", words=shown)
        values[name] = [summary[key] for key in STATISTICS]
        values[shown] = [about.show(summary[key]) for key, about in STATISTICS.items()]
    identity = ".".join(run.id for run in named.values())
    plots.listed(columns, values, "heads_numbers", "Statistics of the head", identity)
