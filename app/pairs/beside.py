"""The far pairs of a second text, or of a second model in the same text, beside the first."""

import streamlit as st

from analysis.runs import Run
from app import cached
from app.pairs import charts, chosen as pairs
from app.ui import asking, other, tables, widgets

SHOWN = ("query", "key", "kind", "attention", "distance")
ROWS = 10


def beside(own: Run, tokens: dict) -> None:
    """Ask what stands beside the pairs of the run `own`, and show both in two columns under the same filters."""
    asked = other.whole("pairs_beside", own, layer=None, head=None, group=None)
    if asked is None:
        return
    more, sides = asked
    run = asking.ask("pairs", own.request | more, "Looking for far pairs")
    read = (own, tokens), (run, cached.columns(run, "tokens"))
    top = max(max(cached.columns(one, "controls")["lift"], default=1.0) for one, _ in read)
    with st.grid(2, min_column_width=420, gap="large"):
        for at, (name, (one, words)) in enumerate(zip(sides, read, strict=True)):
            with st.container():
                st.subheader(name, anchor=False)
                widgets.prose(one.numbers["sentence"], "more")
                _side(one, words, at, top)


def _side(run: Run, tokens: dict, at: int, top: float) -> None:
    listed = pairs.of_kind(pairs.listed(run, tokens), st.session_state["kind"])
    first = {name: listed[name][:ROWS] for name in SHOWN}
    columns = {name: pairs.COLUMNS[name] for name in SHOWN}
    tables.table(columns, first, key=f"pairs_beside_{at}", identity=run.id, label="Its strongest pairs", height=380)
    controls = cached.columns(run, "controls")
    widgets.chart(
        charts.lift(controls, None, top),
        controls,
        title="Attention of same-group pairs against chance",
        key=f"pairs_beside_lift_{at}",
        alt="Lift of the router and of three controls in every layer",
        help=cached.glossary("lift"),
    )
