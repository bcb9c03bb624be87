"""The far pairs of a second text, or of a second model in the same text, beside the first."""

import streamlit as st

from analysis.runs import Run
from app import cached
from app.pairs import charts, chosen as pairs
from app.ui import asking, other, tables, widgets

CHOICES = {"text": "Another text", "model": "Another model"}
SHOWN = ("query", "key", "kind", "attention", "distance")
ROWS = 10


def beside(own: Run, tokens: dict) -> None:
    """Ask what stands beside the pairs of the run `own`, and show both in two columns under the same filters."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        asked = other.choice("pairs_beside", CHOICES)
        if asked is None:
            return
        request, names = own.request, cached.texts()
        if asked == "text":
            key = other.text()
            more, sides = {"text": key}, (names[request["text"]], names[key])
        elif (model := other.model()) is not None:
            more = {"model": model, "router": asking.routers(model)[0], "layer": None, "head": None, "group": None}
            sides = (request["model"], model)
        else:
            return
    run = asking.ask("pairs", request | more, "Looking for far pairs")
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
