"""Pairs of far-apart tokens: naming one in the URL, choosing one, and what the text shows of each."""

import streamlit as st

from analysis.runs import Run
from app import cached
from app.selection import state
from app.ui import foot, head_cards, painted, tables
from app.ui.reading import rows_of

WHY = {  # what the key of a pair is to its query, as `analysis.studies.groups.pairs` finds it
    "copy": "copy: the same token",
    "induction": "induction: what came next when it stood there before",
    "same word": "pieces of the same word",
    "same group": "other words of one learned group",
}
COLUMNS = {
    "query": tables.Column("query (attends)"),
    "key": tables.Column("key (is attended)"),
    "kind": tables.Column("kind", help=cached.glossary("kind of a pair")),
    "attention": tables.Column("attention", "share", help="of the strongest head"),
    "distance": tables.Column("distance", "whole", help="tokens between them"),
    "uniform": tables.Column("chance", "share", digits=4, help="what reading every visible token alike would give"),
    "affinity": tables.Column("affinity", "number", help=cached.glossary("affinity")),
    "cell": head_cards.HEAD,
    "group": tables.Column("group", "whole"),
    "query_position": tables.Column("query at", "whole"),
    "key_position": tables.Column("key at", "whole"),
}


def listed(run: Run, tokens: dict) -> dict:
    """The table of pairs of a run, `query` and `key` as whole words and their head as a `cell`; a token that is no word
    (a line break) is named by what it shows."""
    table = cached.columns(run, "pairs")
    spelled = {"cell": [f"{layer}.{head}" for layer, head in zip(table["layer"], table["head"], strict=True)]}
    for side in ("query", "key"):
        places = zip(table[side], table[f"{side}_position"], strict=True)
        spelled[side] = [word.strip() or painted.visible(tokens["piece"][token]) for word, token in places]
    return table | spelled


def of_kind(pairs: dict, kind: str | None) -> dict:
    """Those of a kind, or all."""
    return pairs if kind is None else rows_of(pairs, kind=kind)


def keys_of(pairs: dict) -> list[str]:
    """The name of every listed pair in the URL."""
    columns = (pairs[name] for name in ("layer", "head", "query_position", "key_position"))
    return [state.pair_key(*row) for row in zip(*columns, strict=True)]


def open_row(keys: list[str]) -> int | None:
    """The row of the chosen pair, else the strongest one; None when there is no pair at all."""
    chosen = st.session_state["pair"]
    return keys.index(chosen) if chosen in keys else 0 if keys else None


def choose_row(keys: list[str], row: int | None) -> None:
    """Open the pair of a row that was clicked."""
    state.choose(st.session_state, pair=None if row is None or row >= len(keys) else keys[row])


def arcs(tokens: dict, pairs: dict) -> list[dict]:
    """The pairs as links of the painted text, with what the card says of each."""
    drawn = painted.arcs(tokens, pairs)
    columns = (pairs[name] for name in ("layer", "head", "attention", "uniform", "kind", "group"))
    for arc, (layer, head, attention, uniform, kind, group) in zip(drawn, zip(*columns, strict=True), strict=True):
        why = f"{WHY[kind]} · group {group}"
        arc |= {"head": f"{layer}.{head}", "attention": attention, "chance": uniform, "why": why}
    return drawn


def found(pairs: dict, row: int) -> None:
    """The open pair is what links of the page lead to."""
    layer, head, group, query, key = (
        pairs[name][row] for name in ("layer", "head", "group", "query_position", "key_position")
    )
    pair = state.pair_key(layer, head, query, key)
    foot.found(layer=layer, head=head, group=group, query=query, why_key=key, pair=pair)
