"""Start: what does the model read in this text?"""

import streamlit as st

from analysis.commands.text import Start
from analysis.runs import Run
from app import cached
from app.pairs import pair_list
from app.start import far
from app.ui import export, foot, other, painted, reading, widgets

BRAND = (
    "<p class='fs-brand'><b>Focuscope</b> shows what a language model reads far back in a text, and what reading less "
    "would cost and gain.</p>"
)
WAYS = (  # page, title, icon, what is behind it
    ("links", "Explore a text", "search", "Which distant words belong together, and which head finds them."),
    ("worth", "Will it pay?", "speed", "What sparse attention could save, from a model's config alone."),
)
PAINTED = "The text, painted by what is read from afar"


def second(run: Run, tokens: dict, place: int, runs: list[Run]) -> None:
    """One side of two texts or models beside each other."""
    widgets.prose(run.numbers["sentences"][:2], "more")
    far.distance(run, f"start_beside_distance_{place}", runs)
    far.text(run, tokens, f"start_beside_text_{place}", "Hover to see a token.")


def show() -> None:
    """What the model reads in this text: the finding, the painted text, its strongest far pair."""
    st.html(BRAND)
    with st.grid(2, min_column_width=240, gap="small", key="doors"):
        for page, title, icon, about in WAYS:
            with st.container(border=True, gap=None):
                foot.link(page, title, icon=icon)
                widgets.prose(about, "quiet")
    run, tokens = reading.reading(
        "What does the model read in this text?",
        "Dense attention over the whole text; how often a token is read from afar, in multiples of chance",
        Start,
        "Reading the text",
    )
    with st.grid(2, min_column_width=400, gap="large"):
        with st.container():
            widgets.prose(run.numbers["sentences"][0])
            widgets.prose(run.numbers["sentences"][1:], "more")
            widgets.notes(run)
        far.distance(run, "start_distance")

    listed = pair_list.listed(run, tokens)
    keys = pair_list.keys_of(listed)
    row = pair_list.open_row(keys)
    st.subheader(PAINTED, anchor=False, help=cached.glossary("far attention"))
    widgets.settled("query", [None, *range(len(tokens["piece"]))], None)
    paint, palette, legend = far.text(
        run,
        tokens,
        "start_text",
        "Click a token to see who reads it, an arc to open its pair.",
        locked=st.session_state["query"],
        on_token=lambda: far.clicked("start_text"),
        arcs=painted.arcs(tokens, listed),
        open_arc=row,
        on_arc=lambda: pair_list.choose_row(keys, painted.clicked("start_text", "arc")),
    )
    export.keep_text(tokens, paint, palette, title=PAINTED, key="start_text", legend=legend)
    far.token(tokens, listed)

    st.subheader("A long-range pair of one group", anchor=False, help=cached.glossary("long-range pair"))
    if row is None:
        distance = f"{run.numbers['min_distance']:,}"
        widgets.prose(f"No two content words {distance} or more tokens apart share a learned group here.", "more")
    else:
        pair_list.picker(listed, keys, row)
        pair_list.show(tokens, listed, row)
    with widgets.guarded():
        other.beside("start_beside", run, tokens, Start, "Reading the text", second)
    with st.expander("Model card, and whether it computes what the stock model computes", icon=":material/verified:"):
        with widgets.guarded():
            reading.model_card(st.session_state["model"])
