"""Attention at any temperature while the slider is dragged: the browser computes it from queries and keys."""

import math

import streamlit as st

from analysis.commands.temperature import QueriesKeys
from analysis.runs import Run
from app import cached
from app.heads import scope
from app.selection import state
from app.ui import asking, packed, painted, widgets

# Bytes of keys that a page sends; of a larger model the layer in use alone.
MOST = 6 << 20
_SHARPEN = painted.part(
    "sharpen",
    """<section class="sharpen">
    <label>Temperature<input type="range" min="0.1" max="2" step="0.01"><output></output></label>
    <p>Reads as if <b class="now"></b> <span class="was quiet"></span></p>
    <canvas role="img" aria-label="Attention along the window: bars now, lines in dense attention"></canvas>
    <div class="sides">
    <div class="text" tabindex="0" aria-label="The text; arrows move the query, Enter keeps it"></div>
    <div><div class="best" role="grid" aria-label="Tokens it reads most"></div>
    <p class="quiet">All heads: the stronger, the sharper.</p>
    <div class="heads" role="group" aria-label="How sharp each head is; arrows go from head to head"></div></div></div>
    </section>""",
    *("numbers", "attention"),
)


def ask(layer: int, part: int, size: int) -> Run:
    """Queries and keys of a window of `size` tokens: of all layers where the page can hold them, else of one."""
    card = asking.card(st.session_state["model"])
    fits = 2 * card["layers"] * card["kv_heads"] * card["head_dim"] * size <= MOST
    args = state.study_args(st.session_state, part=part, **({} if fits else {"layer": layer}))
    return asking.ask(QueriesKeys(**args), "Reading queries and keys", size)


def show(tokens: dict, layer: int, head: int, key: str) -> None:
    """The picture for one head; what is released stands in the address."""
    now = st.session_state["layer"], st.session_state["head"]
    if None not in now and now != (layer, head):
        # Another head was chosen in the picture: the page around it follows.
        st.rerun()
    part, query = scope.place(tokens)
    if query is None:
        query = scope.ask(layer, head, part, None).numbers["query"]
    run = ask(layer, part, tokens["window"].count(part))
    numbers, chosen = run.numbers, st.session_state
    offset, length, at = numbers["offset"], numbers["length"], numbers["layers"].index(layer)
    queries, keys = cached.array(run, "query"), cached.array(run, "key")
    pieces = list(tokens["piece"])
    for first, stop, spelled in painted.characters(tokens):
        pieces[first:stop] = [spelled, *[""] * (stop - first - 1)]
    shape = {"heads": queries.shape[1], "groups": keys.shape[1], "length": length, "size": keys.shape[3]}
    data = {name: numbers[name] for name in ("layers", "scaling", "softcap", "window", "places", "offset")}
    data |= {"id": f"{run.id}.{layer}.{head}", "shape": shape, "layer": layer, "head": head, "query": query}
    data |= {"t": chosen["softmax"], "pieces": pieces[offset : offset + length], "widest": math.log(max(2, length))}
    data |= {"keys": packed.halves(keys), "mine": packed.halves(queries[at, head])}
    data["spread"] = packed.halves(queries[:, :, numbers["places"]])

    def released(name: str, control: str, base: int = 0) -> None:
        value = chosen[key].get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            state.choose(chosen, **{control: base + value})

    acts = {
        "on_t_change": lambda: released("t", "softmax"),
        "on_query_change": lambda: released("query", "query", offset),
    }
    _SHARPEN(key=key, data=data, on_head_change=lambda: _head(chosen[key].get("head")), **acts)
    moved = numbers["rounding"]
    held = "" if len(numbers["layers"]) > 1 else f" Layer {layer} alone: the model is large."
    widgets.prose(
        f"Rounded to float16: weights within {moved['1']:.2%} at temperature 1, {moved['0.1']:.1%} at 0.1.{held}",
        "quiet",
    )


def _head(cell: object) -> None:
    if isinstance(cell, str):
        layer, head = cell.split(".")
        state.choose(st.session_state, layer=int(layer), head=int(head))
