"""The numerics of the scores: a badge that says how large they are and how exact, and every layer in a table."""

import streamlit as st

from analysis.runs import Run
from app import cached
from app.ui import tables, widgets

WIDE = 0.01  # of a weight: more than this is no rounding any more
TERM = "numerics of the scores"
COLUMNS = {
    "layer": tables.Column("layer", "whole"),
    "largest_score": tables.Column("largest score", "number", 1, help=cached.glossary(TERM)),
    "difference": tables.Column("float32 against float64", words="difference_words", kind="number"),
    "own_difference": tables.Column("own type against float64", words="own_words", kind="number"),
}


def badge(run: Run) -> None:
    """The worst layer."""
    precision = run.numbers["numerics"]
    wide = precision["own_difference"] > WIDE
    label = f"scores up to {precision['largest_score']:,.1f}, weights within {precision['difference']:.0e} of float64"
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.badge(label, icon=":material/calculate:", color="orange" if wide else "green", help=cached.glossary(TERM))
    if wide:
        widgets.prose(
            f"In {precision['dtype']}, the model's own type, a weight would be off by up to "
            f"{precision['own_difference']:.1%}: its scores are computed in float32 here.",
            "note",
        )


def layers(run: Run) -> None:
    """Every layer, behind a fold."""
    precision, values = run.numbers["numerics"], cached.columns(run, "numerics")
    with st.expander("Numerics, layer by layer", icon=":material/calculate:"):
        cells = {name: values[name] for name in COLUMNS}
        cells["difference_words"] = [f"{value:.1e}" for value in values["difference"]]
        cells["own_words"] = [f"{value:.1e}" for value in values["own_difference"]]
        tables.table(COLUMNS, cells, key="heads_numerics", identity=run.id, label="Scores of every layer", height=260)
        widgets.numbers({name: values[name] for name in COLUMNS}, "numerics", "heads_numerics_rows")
        widgets.prose(f"Largest over {precision['queries']} queries of each window, all heads.", "quiet")
