"""Who reads a clicked token from afar and what it reads, by the far pairs of the text; and the way to its heads."""

import streamlit as st

from app import cached
from app.selection import state
from app.ui import asking, onward, painted, tables, widgets

MOST = 3  # pairs that are told on either side
COLUMNS = {
    "layer": tables.Column("layer", "whole"),
    "head": tables.Column("head", "whole"),
    "named": tables.Column("read by"),
    "position": tables.Column("at token", "whole"),
    "distance": tables.Column("tokens later", "whole", help=cached.glossary("distance")),
    "attention": tables.Column("gives it", "share", full=1.0, help=cached.glossary("attention mass")),
    "mean": tables.Column("all later tokens", "share", digits=4, help="mean over every later token of the window"),
}


def clicked(key: str) -> None:
    """A callback: the token that was clicked in the painted text is the query of every page; a second click lets go."""
    state.choose(st.session_state, query=painted.clicked(key, "token"))


def sentences(tokens: dict, pairs: dict, token: int) -> tuple[list[str], int | None]:
    """What is known of token `token`: sentences, and the row of the strongest pair in which it reads, or None."""
    first, last = painted.word_at(tokens, token)
    sides = {
        side: [row for row, place in enumerate(pairs[f"{side}_position"]) if first <= place < last]
        for side in ("query", "key")
    }
    received = tokens["received"][token]
    name = f"“{tokens['word'][token] or painted.visible(tokens['piece'][token])}” (token {token:,})"
    received_words = f" is read from afar {received:.1f} times as much as by chance." if received is not None else ":"
    reads = [f"It reads {_told(pairs, row, 'key')}." for row in sides["query"][:MOST]]
    reads += [f"It is read by {_told(pairs, row, 'query')}." for row in sides["key"][:MOST]]
    if not reads:
        reads = [f"It stands in none of the {len(pairs['query']):,} strongest far pairs of one group."]
    return [name + received_words, *reads], next(iter(sides["query"]), None)


def _told(pairs: dict, row: int, end: str) -> str:
    pair = {name: pairs[name][row] for name in pairs}
    way = "back" if end == "key" else "later"
    return (
        f"“{pair[end]}” {pair['distance']:,} tokens {way}: {pair['attention']:.0%} of the attention of head "
        f"{pair['head']} in layer {pair['layer']}"
    )


def _readers(tokens: dict, token: int) -> None:
    """Every head's strongest later reader of token `token`, whatever group both are in."""
    request = state.study_args(st.session_state, token=token)
    run = asking.ask("readers", request, "Looking who reads it", len(tokens["piece"]))
    widgets.prose(run.numbers["sentence"], "more")
    listed = cached.columns(run, "readers")
    if listed["layer"]:
        label = "The later token of each head that reads it most"
        tables.table(COLUMNS, listed, key="start_readers", identity=run.id, label=label, height=280)
        widgets.numbers(listed, "readers", "start_readers_numbers", "Who reads it")


def show(tokens: dict, pairs: dict) -> None:
    """The sentences about the chosen token, and the page that shows it through every head; nothing where none is."""
    token = st.session_state["query"]
    if token is None:
        return
    lines, row = sentences(tokens, pairs, token)
    widgets.prose(lines[:1])
    widgets.prose(lines[1:], "more")
    with widgets.guarded():
        _readers(tokens, token)
    head = {} if row is None else {name: pairs[name][row] for name in ("layer", "head")}
    names = ("query", *head)
    link = onward.carried(names) | {name: str(value) for name, value in head.items()}
    st.page_link(
        "views/attention_heads.py", label="Open in Attention heads", icon=":material/arrow_forward:", query_params=link
    )
