"""Do layers read the same keys? One picture of how far, and which of them would choose best for those below."""

from typing import Any

import streamlit as st

from analysis.commands.routing import Reuse
from app import cached
from app.selection import state
from app.ui import asking, plots, widgets
from app.ui.charts import HERE, NAMES, figure

# Layers up to which each square has its number.
SPELLED = 12


def show(layers: int) -> None:
    """Of the chosen text, with a third of the model's `layers` choosing."""
    request = cached.request(Reuse, **state.study_args(st.session_state), anchors=max(1, layers // 3))
    run = asking.ask(request, "Comparing the layers' best keys", asking.inspected()["tokens"])
    widgets.prose(run.numbers["sentence"], "more")
    table = cached.columns(run, "overlap")
    plots.draw(overlap(table), table, "Best keys that two layers share", "route_layers", "overlap of layers")
    widgets.notes(run)


def overlap(table: dict) -> dict[str, Any]:
    """The layers against each other."""
    trace = {
        "type": "heatmap",
        **{"x": list(map(str, table["other"])), "y": list(map(str, table["layer"])), "z": table["shared"]},
        "text": [f"{share:.0%}" for share in table["shared"]],
        "texttemplate": "%{text}" if len(set(table["layer"])) <= SPELLED else "",
        "colorscale": [[0, "rgba(20,131,176,0)"], [1, HERE]],
        **{"zmin": 0, "zmax": 1, "xgap": 1, "ygap": 1, "colorbar": {"tickformat": ".0%", "thickness": 12}},
        "hovertemplate": "layers %{y} and %{x}<br>%{z:.1%} of the best keys<extra></extra>",
    }
    axis = NAMES | {"showgrid": False}
    return figure([trace], "layer", "layer", xaxis=axis, yaxis=axis | {"autorange": "reversed"})
