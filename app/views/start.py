"""Start: what does the model read in this text?"""

import streamlit as st

from app import cached
from app.pairs import chosen as pairs
from app.start import beside, token
from app.start.doors import doors
from app.ui import charts, kept_text, painted, reading, widgets

doors()
run, tokens = reading.reading(
    "What does the model read in this text?",
    "Dense attention over the whole text; how often a token is read from afar, in multiples of chance",
    "start",
    "Reading the text",
)
with st.grid(2, min_column_width=400, gap="large"):
    with st.container():
        widgets.prose(run.numbers["sentences"][0])
        widgets.prose(run.numbers["sentences"][1:], "more")
        widgets.notes(run)
    table = cached.columns(run, "distance")
    widgets.chart(
        charts.distance(table),
        table,
        title="How far back it reads",
        key="start_distance",
        alt="Share of the attention by distance, beside uniform reading",
        help=cached.glossary("chance level (uniform reading)"),
    )

far = run.numbers["min_distance"]
listed = pairs.listed(run, tokens)
keys = pairs.keys_of(listed)
row = pairs.open_row(keys)

st.subheader("The text, painted by what is read from afar", anchor=False, help=cached.glossary("far attention"))
widgets.settled("query", [None, *range(len(tokens["piece"]))], None)
paint, palette = painted.by_received(tokens["received"])
legend = f"attention received from {far:,} or more tokens later"
painted.painted(
    tokens,
    paint,
    palette,
    key="start_text",
    identity=run.id,
    tips=[("read from afar", [widgets.times_chance(value) for value in tokens["received"]])],
    legend=legend,
    hint="Click a token to see who reads it, an arc to open its pair.",
    locked=st.session_state["query"],
    on_token=lambda: token.clicked("start_text"),
    arcs=painted.arcs(tokens, listed),
    open_arc=row,
    on_arc=lambda: pairs.choose_row(keys, painted.clicked("start_text", "arc")),
)

title = "The text, painted by what is read from afar"
kept_text.keep(tokens, paint, palette, title=title, key="start_text", legend=legend)
token.show(tokens, listed)

st.subheader("A long-range pair of one group", anchor=False, help=cached.glossary("long-range pair"))
if row is None:
    widgets.prose(f"No two content words {far:,} or more tokens apart share a learned group here.", "more")
else:
    pairs.picker(listed, keys, row)
    pairs.show(tokens, listed, row)

with widgets.guarded():
    beside.beside(run, tokens)

with st.expander("Model card, and whether it computes what the stock model computes", icon=":material/verified:"):
    with widgets.guarded():
        reading.model_card(st.session_state["model"])
