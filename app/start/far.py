"""What of a text is read from afar: the painted text, attention by distance, and who reads a chosen token."""

import streamlit as st

from analysis.commands.heads import Readers
from analysis.runs import Run
from app import cached
from app.selection import state
from app.ui import asking, charts, head_cards, painted, plots, tables, widgets

COLUMNS = {
    "cell": head_cards.HEAD,
    "word": tables.Column("read by"),
    "position": tables.Column("at token", "whole"),
    "distance": tables.Column("tokens later", "whole", help=cached.glossary("distance")),
    "attention": tables.Column("gives it", "share", full=1.0, help=cached.glossary("attention mass")),
    "mean": tables.Column("all later tokens", "share", digits=4, help="mean over every later token of the window"),
}


def paint(run: Run, tokens: dict) -> tuple[list[int], list[dict], str]:
    """Paint, palette and legend of the text by the attention that each token receives from afar."""
    legend = f"read from {run.numbers['min_distance']:,} or more tokens later, times chance"
    return *painted.classes(tokens["received"]), legend


def text(run: Run, tokens: dict, key: str, hint: str) -> None:
    """The text painted so, where nothing answers a click."""
    shades, palette, legend = paint(run, tokens)
    tips = [("read from afar", [widgets.times_chance(value) for value in tokens["received"]])]
    painted.painted(tokens, shades, palette, key=key, identity=run.id, tips=tips, legend=legend, hint=hint)


def distance(run: Run, key: str, runs: list[Run] | None = None) -> None:
    """The attention by distance; with `runs` on one scale for all of them."""
    table = cached.columns(run, "distance")
    figure = charts.distance(table)
    if runs:
        tables_of = [cached.columns(each, "distance") for each in runs]
        top = max(max(columns[side]) for columns in tables_of for side in ("mass", "uniform"))
        figure["layout"]["yaxis"] |= {"range": [0, 1.05 * top]}
    plots.draw(figure, table, "How far back it reads", key, "chance level (uniform reading)")


def readers(tokens: dict) -> None:
    """Every head's strongest later reader of the chosen token, near or far."""
    place = st.session_state["query"]
    if place is None:
        widgets.prose("Click a word of the text: here stands who reads it, head by head.", "quiet")
        return
    request = Readers(**state.study_args(st.session_state, token=place))
    run = asking.ask(request, "Looking who reads it", len(tokens["piece"]))
    widgets.prose(run.numbers["sentence"], "more")
    listed = cached.columns(run, "readers")
    if listed["layer"]:
        cells = [f"{layer}.{head}" for layer, head in zip(listed["layer"], listed["head"], strict=True)]
        listed = listed | {"cell": cells, "word": [tokens["word"][place] for place in listed["position"]]}
        label = "The later token of each head that reads it most"
        plots.listed(COLUMNS, listed, "start_readers", label, run.id, height=280)
