"""What the model reads in a second text, or a second model in the same text, beside the first."""

import streamlit as st

from analysis.runs import Run
from app import cached
from app.ui import asking, charts, other, painted, widgets


def beside(first: Run, tokens: dict) -> None:
    """Ask what stands beside the reading `first`, and show both in two columns, on one scale."""
    second = other.whole("start_beside", first)
    if second is None:
        return
    changes, sides = second
    run = asking.ask("start", first.request | changes, "Reading the text")
    read = (first, tokens), (run, cached.columns(run, "tokens"))
    top = max(max(cached.columns(side_run, "distance")[side]) for side_run, _ in read for side in ("mass", "uniform"))
    with st.grid(2, min_column_width=420, gap="large"):
        for side_index, (name, (side_run, words)) in enumerate(zip(sides, read, strict=True)):
            with st.container():
                st.subheader(name, anchor=False)
                widgets.prose(side_run.numbers["sentences"][:2], "more")
                _side(side_run, words, side_index, top)


def _side(run: Run, tokens: dict, place: int, top: float) -> None:
    table = cached.columns(run, "distance")
    figure = charts.distance(table)
    figure["layout"]["yaxis"] |= {"range": [0, 1.05 * top]}
    widgets.chart(
        figure,
        table,
        title="How far back it reads",
        key=f"start_beside_distance_{place}",
        alt="Share of the attention by distance, beside uniform reading, both texts on one scale",
        help=cached.glossary("chance level (uniform reading)"),
    )
    paint, palette = painted.by_received(tokens["received"])
    painted.painted(
        tokens,
        paint,
        palette,
        key=f"start_beside_text_{place}",
        identity=run.id,
        tips=[("read from afar", [widgets.times_chance(value) for value in tokens["received"]])],
        legend=f"attention received from {run.numbers['min_distance']:,} or more tokens later",
        hint="Hover to see a token.",
    )
