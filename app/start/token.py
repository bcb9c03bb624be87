"""Who reads a clicked token from afar and what it reads, by the far pairs of the text; and the way to its heads."""

import streamlit as st

from app.selection import state
from app.ui import onward, painted, widgets

MOST = 3  # pairs that are told on either side


def clicked(key: str) -> None:
    """A callback: the token that was clicked in the painted text is the query of every page; a second click lets go."""
    state.choose(st.session_state, query=painted.clicked(key, "token"))


def sentences(tokens: dict, pairs: dict, at: int) -> tuple[list[str], int | None]:
    """What is known of token `at`: sentences, and the row of the strongest pair in which it reads, or None."""
    first, last = painted.word_at(tokens, at)
    sides = {
        side: [row for row, place in enumerate(pairs[f"{side}_position"]) if first <= place < last]
        for side in ("query", "key")
    }
    received = tokens["received"][at]
    name = f"“{tokens['word'][at] or painted.visible(tokens['piece'][at])}” (token {at:,})"
    known = f" is read from afar {received:.1f} times as much as by chance." if received is not None else ":"
    told = [f"It reads {_told(pairs, row, 'key')}." for row in sides["query"][:MOST]]
    told += [f"It is read by {_told(pairs, row, 'query')}." for row in sides["key"][:MOST]]
    if not told:
        told = [f"It stands in none of the {len(pairs['query']):,} strongest far pairs of one group."]
    return [name + known, *told], next(iter(sides["query"]), None)


def _told(pairs: dict, row: int, other: str) -> str:
    at = {name: pairs[name][row] for name in pairs}
    way = "back" if other == "key" else "later"
    return (
        f"“{at[other]}” {at['distance']:,} tokens {way}: {at['attention']:.0%} of the attention of head {at['head']} "
        f"in layer {at['layer']}"
    )


def show(tokens: dict, pairs: dict) -> None:
    """The sentences about the chosen token, and the page that shows it through every head; nothing where none is."""
    at = st.session_state["query"]
    if at is None:
        return
    said, row = sentences(tokens, pairs, at)
    widgets.prose(said[:1])
    widgets.prose(said[1:], "more")
    head = {} if row is None else {name: pairs[name][row] for name in ("layer", "head")}
    names = ("query", *head)
    link = onward.carried(names) | {name: str(value) for name, value in head.items()}
    st.page_link(
        "views/attention_heads.py", label="Open in Attention heads", icon=":material/arrow_forward:", query_params=link
    )
