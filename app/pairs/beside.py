"""The far pairs of a second text, or of a second model in the same text, beside the first."""

import streamlit as st

from analysis.runs import Run
from app import cached
from app.pairs import charts, chosen as pairs
from app.ui import asking, other, tables, widgets

SHOWN = ("query", "key", "kind", "attention", "distance")
ROWS = 10


def beside(first: Run, tokens: dict) -> None:
    """Ask what stands beside the pairs of the run `first`, and show both in two columns under the same filters."""
    second = other.whole("pairs_beside", first, layer=None, head=None, group=None)
    if second is None:
        return
    changes, sides = second
    run = asking.ask("pairs", first.request | changes, "Looking for far pairs")
    read = (first, tokens), (run, cached.columns(run, "tokens"))
    top = max(max(cached.columns(run_, "controls")["lift"], default=1.0) for run_, _ in read)
    with st.grid(2, min_column_width=420, gap="large"):
        for side, (name, (run_, words)) in enumerate(zip(sides, read, strict=True)):
            with st.container():
                st.subheader(name, anchor=False)
                widgets.prose(run_.numbers["sentence"], "more")
                _side(run_, words, side, top)


def _side(run: Run, tokens: dict, side: int, top: float) -> None:
    listed = pairs.of_kind(pairs.listed(run, tokens), st.session_state["kind"])
    first = {name: listed[name][:ROWS] for name in SHOWN}
    columns = {name: pairs.COLUMNS[name] for name in SHOWN}
    tables.table(columns, first, key=f"pairs_beside_{side}", identity=run.id, label="Its strongest pairs", height=380)
    controls = cached.columns(run, "controls")
    widgets.chart(
        charts.lift(controls, None, top),
        controls,
        title="Attention of same-group pairs against chance",
        key=f"pairs_beside_lift_{side}",
        alt="Lift of the router and of three controls in every layer",
        help=cached.glossary("lift"),
    )
