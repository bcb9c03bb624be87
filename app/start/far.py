"""What of a text is read from afar: the painted text, attention by distance, and who reads a clicked token."""

from typing import Any

import streamlit as st

from analysis.commands.heads import Readers
from analysis.runs import Run
from app import cached
from app.selection import state
from app.ui import asking, charts, foot, painted, plots, tables, widgets

# Pairs that are told on either side.
MOST = 3
COLUMNS = {
    "layer": tables.Column("layer", "whole"),
    "head": tables.Column("head", "whole"),
    "named": tables.Column("read by"),
    "position": tables.Column("at token", "whole"),
    "distance": tables.Column("tokens later", "whole", help=cached.glossary("distance")),
    "attention": tables.Column("gives it", "share", full=1.0, help=cached.glossary("attention mass")),
    "mean": tables.Column("all later tokens", "share", digits=4, help="mean over every later token of the window"),
}


def text(run: Run, tokens: dict, key: str, hint: str, **look: Any) -> tuple[list[int], list[dict], str]:
    """The text painted by the attention that each token receives from afar; its paint, palette and legend."""
    paint, palette = painted.by_received(tokens["received"])
    legend = f"attention received from {run.numbers['min_distance']:,} or more tokens later"
    tips = [("read from afar", [widgets.times_chance(value) for value in tokens["received"]])]
    more = {"identity": run.id, "tips": tips, "legend": legend, "hint": hint, **look}
    painted.painted(tokens, paint, palette, key=key, **more)
    return paint, palette, legend


def distance(run: Run, key: str, runs: list[Run] | None = None) -> None:
    """The attention by distance; with `runs` on one scale for all of them."""
    table = cached.columns(run, "distance")
    figure = charts.distance(table)
    if runs:
        tables_of = [cached.columns(each, "distance") for each in runs]
        top = max(max(columns[side]) for columns in tables_of for side in ("mass", "uniform"))
        figure["layout"]["yaxis"] |= {"range": [0, 1.05 * top]}
    plots.draw(figure, table, "How far back it reads", key, "chance level (uniform reading)")


def clicked(key: str) -> None:
    """A callback: the token that was clicked in the painted text is the query of every page; a second click lets go."""
    state.choose(st.session_state, query=painted.clicked(key, "token"))


def token(tokens: dict, pairs: dict) -> None:
    """Who reads the chosen token from afar and what it reads, by the far `pairs` of the text; and the way to its heads.
    Nothing where no token is chosen."""
    place = st.session_state["query"]
    if place is None:
        return
    first, last = painted.word_at(tokens, place)
    sides = {
        side: [row for row, position in enumerate(pairs[f"{side}_position"]) if first <= position < last]
        for side in ("query", "key")
    }
    received = tokens["received"][place]
    name = f"“{tokens['word'][place] or painted.visible(tokens['piece'][place])}” (token {place:,})"
    times = ":" if received is None else f" is read from afar {received:.1f} times as much as by chance."
    reads = [f"It reads {_spelled(pairs, row, 'key')}." for row in sides["query"][:MOST]]
    reads += [f"It is read by {_spelled(pairs, row, 'query')}." for row in sides["key"][:MOST]]
    if not reads:
        reads = [f"It stands in none of the {len(pairs['query']):,} strongest far pairs of one group."]
    widgets.prose(name + times)
    widgets.prose(reads, "more")
    with widgets.guarded():
        _readers(tokens, place)
    controls = foot.carried(("query",))
    if sides["query"]:
        controls |= {name: str(pairs[name][sides["query"][0]]) for name in ("layer", "head")}
    foot.link("map", "Open in Heads", controls)


def _spelled(pairs: dict, row: int, end: str) -> str:
    pair = {name: pairs[name][row] for name in pairs}
    way = "back" if end == "key" else "later"
    return (
        f"“{pair[end]}” {pair['distance']:,} tokens {way}: {pair['attention']:.0%} of the attention of head "
        f"{pair['head']} in layer {pair['layer']}"
    )


def _readers(tokens: dict, place: int) -> None:
    """Every head's strongest later reader of a token, whatever group both are in."""
    request = Readers(**state.study_args(st.session_state, token=place))
    run = asking.ask(request, "Looking who reads it", len(tokens["piece"]))
    widgets.prose(run.numbers["sentence"], "more")
    listed = cached.columns(run, "readers")
    if listed["layer"]:
        label = "The later token of each head that reads it most"
        plots.listed(COLUMNS, listed, "start_readers", label, run.id, height=280)
