"""What is still in the KV cache of an answer, painted on the text; what a new token read, and what it could not."""

import streamlit as st

from analysis.runs import Run
from app import cached
from app.generate import held
from app.generate.held import Place
from app.selection import state
from app.ui import fields, painted, tables, widgets

ROW = {
    "position": tables.Column("token", "whole", help="its place in the prompt and the answer"),
    "weight": tables.Column("attention", "share", full=1.0, help=cached.glossary("attention mass")),
    "context": tables.Column("in its context", wrap=True, help="the token in brackets"),
    "back": tables.Column("back", "whole", help=cached.glossary("distance")),
}
BEFORE = 6  # tokens of context in a row
GONE = {
    "memory": (
        "What it could not read",
        "could not read",
        "{share} of its attention would have gone to keys that are gone.",
    ),
    "reads": (
        "What it passed over",
        "passed over",
        "{share} of dense attention would have gone to keys it passes over.",
    ),
}
GONE["prefill"] = GONE["reads"]


def shown(run: Run, prompt: dict) -> None:
    """The painted text of one answer with its controls; `prompt`: its tokens."""
    side, answer, step, place = _controls(run)
    row = run.numbers["rows"][side]
    tokens = joined(prompt, answer)
    size, first = len(tokens["piece"]), len(prompt["piece"])
    query = first + step - 1  # the token that was read when the new one was made
    shares, passed = held.held(run.numbers, cached.array(run, "kept")[side], query, place)
    paint, palette = held.paint(shares, passed, place, size)
    read = _keys(run, side, step, place) if run.numbers["traced"] else None
    arcs = _arcs(tokens, first + step, read, row) if read else []
    group = run.numbers["heads"] // run.numbers["kv_heads"]
    heads = 1 if place.single else run.numbers["kv_heads"] * (1 if place.layer is not None else run.numbers["layers"])
    painted.painted(
        tokens,
        paint,
        palette,
        key="generate_text",
        identity=f"{run.id}{run.created}.{side}.{step}.{place}",
        place=f"{run.id}.{side}",
        tips=[("KV cache", held.said(shares, passed, heads, size))],
        legend=_legend(place, group),
        hint="Click a new token (they stand at the end) to see what it read.",
        arcs=arcs,
        locked=first + step,
        on_token=lambda: _clicked(first, len(answer["piece"])),
    )
    if read:
        _tables(run, tokens, first + step, read, row, step, side)
    else:
        widgets.prose("The prompt is too long here to keep what each token read.", "note")


def _controls(run: Run) -> tuple[int, dict, int, Place]:
    """Which answer, its tokens, which of them, and which head."""
    rows = run.numbers["rows"]
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        if st.session_state["generate_side"] >= len(rows):
            state.choose(st.session_state, generate_side=len(rows) - 1)
        look = {"format_func": lambda row_index: rows[row_index]["label"], "required": True}
        painted_side = st.session_state["generate_side"]
        side = fields.pick(
            st.segmented_control, "Painted answer", list(range(len(rows))), "generate_side", painted_side, **look
        )
        layer = _one_of("layer", run.numbers["layers"])
        head = _one_of("head", run.numbers["heads"] if layer is not None else 0)
    answer = _answer(run, side)
    return side, answer, _step(len(answer["piece"])), Place(layer, head)


def _one_of(axis: str, count: int) -> int | None:
    """A layer or head to look at, None for all of them."""
    name, chosen = f"generate_{axis}", st.session_state
    if count:
        widgets.settled(name, [None, *range(count)], None)
    now = chosen[name] if count else None
    chosen[f"{name}_pick"] = -1 if now is None else now  # a select box takes None for nothing chosen
    st.selectbox(
        axis.capitalize(),
        range(-1, count),
        key=f"{name}_pick",
        format_func=lambda place: f"all {axis}s" if place < 0 else f"{axis} {place}",
        on_change=_picked,
        args=(name,),
        width=140,
        disabled=not count,
    )
    return now


def _picked(name: str) -> None:
    place = st.session_state[f"{name}_pick"]
    state.choose(st.session_state, **{name: None if place < 0 else place})


def _step(count: int) -> int:
    """Which new token is looked at, from 0; the last one unless chosen."""
    widgets.settled("generate_at", [None, *range(1, count + 1)], None)
    now = st.session_state["generate_at"] or count
    if count == 1:
        return 0
    st.session_state["generate_at_pick"] = now
    look = {"key": "generate_at_pick", "on_change": fields.keep_pick, "args": ("generate_at",)}
    st.slider("New token", 1, count, **look)
    return now - 1


def _answer(run: Run, side: int) -> dict:
    table = cached.columns(run, "answers")
    rows = [row for row, row_side in enumerate(table["side"]) if row_side == side]
    return {name: [column[row] for row in rows] for name, column in table.items()}


def joined(prompt: dict, answer: dict) -> dict:
    """The tokens of a prompt and an answer as one table to paint."""
    end, piece = prompt["end"][-1], list(answer["piece"])
    columns = {"piece": prompt["piece"] + piece, "window": [0] * (len(prompt["piece"]) + len(piece))}
    columns["word"] = prompt["word"] + [word.strip() for word in piece]
    return columns | {name: prompt[name] + [end + char for char in answer[name]] for name in ("start", "end")}


def _keys(run: Run, side: int, step: int, place: Place) -> dict:
    """The keys of one new token: `read` and `gone` as [(place, weight)], and `lost`, the share that was gone."""
    row = place.row(run.numbers["layers"], run.numbers["heads"])
    reads: dict = {"lost": float(cached.array(run, "lost")[side, step, row])}
    for kind in ("read", "gone"):
        keys, weights = (cached.array(run, kind + name)[side, step, row] for name in ("", "_weight"))
        reads[kind] = [(int(key), float(weight)) for key, weight in zip(keys, weights, strict=True) if key >= 0]
    return reads


def _arcs(tokens: dict, query: int, read: dict, row: dict) -> list[dict]:
    """An arc from the new token to each key that it read, and to each that it could not."""
    arcs = []
    for kind, words in (("read", "read"), ("gone", GONE[row["saves"]][1])):
        for key, weight in read[kind]:
            label = f"{words} {painted.visible(tokens['piece'][key])!r}, {query - key:,} tokens back: {weight:.1%}"
            arcs.append({"query": query, "key": key, "label": label, "mark": [query, key]})
    return arcs


def _tables(run: Run, tokens: dict, token: int, read: dict, row: dict, step: int, side: int) -> None:
    name = painted.visible(tokens["piece"][token])
    title, _, lost = GONE[row["saves"]]
    with st.grid(2, min_column_width=420, gap="large"):
        for kind, heading in (("read", f"What “{name}” read"), ("gone", title)):
            with st.container():
                st.markdown(f"**{widgets.plain(heading)}**")
                if kind == "gone":
                    _missing(run, read, row, step, lost)
                if read[kind]:
                    _keys_table(
                        tokens, token, read[kind], f"generate_{kind}", f"{run.id}.{side}.{token}.{kind}.{read[kind]}"
                    )


def _missing(run: Run, read: dict, row: dict, step: int, lost: str) -> None:
    if row["method"] == "dense":
        widgets.prose("Dense attention reads every key.", "quiet")
    elif row["saves"] == "memory" and step == 0 and run.protocol["known"]:
        widgets.prose("The prompt's last token made this one, before keys were dropped: nothing was gone yet.", "quiet")
    elif read["lost"] < 0.0005:
        widgets.prose("Nothing that it would have read is missing here.", "quiet")
    else:
        widgets.prose(lost.format(share=f"{read['lost']:.1%}"), "quiet")


def _keys_table(tokens: dict, query: int, keys: list[tuple[int, float]], key: str, identity: str) -> None:
    values = {
        "position": [token for token, _ in keys],
        "context": [_context(tokens, token) for token, _ in keys],
        "back": [query - token for token, _ in keys],
        "weight": [weight for _, weight in keys],
    }
    tables.table(ROW, values, key=key, identity=identity, label="Keys with the most attention", height=330)


def _context(tokens: dict, token: int) -> str:
    before, after = (
        "".join(tokens["piece"][max(0, token - BEFORE) : token]),
        "".join(tokens["piece"][token + 1 : token + 1 + BEFORE]),
    )
    return f"{before}[{painted.visible(tokens['piece'][token])}]{after}".replace("\n", " ↵ ")


def _legend(place: Place, group: int) -> str:
    if not place.single:
        return "key-value heads that hold the token; unpainted: gone from all of them, or not written yet"
    shared = f"head {place.head} of layer {place.layer}"
    shared += f", which shares its keys with {group - 1} more" if group > 1 else ""
    return f"{shared}; unpainted: not written yet"


def _clicked(first: int, count: int) -> None:
    token = painted.clicked("generate_text", "token")
    if token is not None and first <= token < first + count:
        state.choose(st.session_state, generate_at=token - first + 1)
