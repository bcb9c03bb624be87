"""Parts of the groups page that need more than a line: what a group holds, the map of routing vectors, the fitting of a
router."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import streamlit as st

from analysis.commands.groups import FitRouter
from analysis.runs import Run
from app import cached
from app.ui import charts, jobs, plots, tables

TERMS = {"share": "largest group's share (dominance)", "confidence": "confidence"}
COLUMNS = {
    "group": tables.Column("group", "whole"),
    "label": tables.Column("label", help="the category it holds most above chance"),
    "share": tables.Column("share", "share", full=1.0, help=cached.glossary("group share")),
    "confidence": tables.Column("confidence", "number", help=cached.glossary("confidence")),
    "purity": tables.Column("purity", "share", full=1.0, help=cached.glossary("purity")),
    "purity_random": tables.Column("by chance", "share", help=cached.glossary("random group of equal size")),
    "interval": tables.Column("95% of chance"),
    "words": tables.Column("top words", wrap=True),
}
LASSO = {
    "position": tables.Column("position", "whole"),
    "word": tables.Column("token", "token"),
    "group": tables.Column("group", "whole"),
    "label": tables.Column("label"),
}


def contents(groups: dict, words: dict) -> dict:
    """The groups of one layer with the interval of chance and their top words spelled out."""
    top: dict[int, list[str]] = {group: [] for group in groups["group"]}
    for word, group in zip(words["word"], words["group"], strict=True):
        top[group].append(word)
    ends = zip(groups["purity_random_low"], groups["purity_random_high"], strict=True)
    intervals = [None if low is None else f"{low:.0%} to {high:.0%}" for low, high in ends]
    return groups | {"interval": intervals, "words": [", ".join(listed[:8]) for listed in top.values()]}


def vectors(
    run: Run, umap: Run | None, layer: int, group: np.ndarray, tokens: dict, labels: Sequence[str], chosen: int | None
) -> None:
    """Routing vectors of one layer as a map (PCA, or UMAP when its run is given); a lasso lists the tokens in it."""
    if umap is None:
        place = cached.columns(run, "layers")["layer"].index(layer)
        xy, positions = cached.array(run, "pca")[place], list(range(len(group)))
        variance = cached.array(run, "pca_variance")[place]
        x, y = (f"component {n + 1} ({share:.0%} of the variance)" for n, share in enumerate(variance))
    else:
        xy, positions = cached.array(umap, "umap"), cached.array(umap, "positions").tolist()
        x, y = "UMAP 1 (no unit)", "UMAP 2 (no unit)"
    words = [tokens["word"][token] or tokens["piece"][token] for token in positions]
    groups = [int(group[token]) for token in positions]
    values = {"position": positions, "word": words, "group": groups, "x": xy[:, 0].tolist(), "y": xy[:, 1].tolist()}
    drawn = charts.sampled(len(positions))
    places, colours = ([column[token] for token in drawn] for column in (positions, groups))
    texts = [words[token] for token in drawn]
    figure = charts.vectors(xy[list(drawn)], places, colours, texts, labels, (x, y), chosen)
    term = "UMAP" if umap else "PCA"
    points = plots.draw(figure, values, f"Routing vectors of layer {layer}", "groups_vectors", term, select="lasso")
    if len(drawn) < len(positions):
        st.caption(
            f"{len(drawn):,} of the {len(positions):,} tokens are drawn, evenly spaced over the text, and a lasso "
            "finds only these. The file and the table hold all tokens."
        )
    marked = (point["customdata"] for point in points)
    inside = sorted({int(mark[0] if isinstance(mark, list) else mark) for mark in marked})
    rows = [
        {"position": token, "word": tokens["piece"][token], "group": int(group[token]), "label": labels[group[token]]}
        for token in inside
        if 0 <= token < len(group)
    ]
    if not rows:
        st.caption("Draw a lasso around some points to list their tokens; a double click releases it.")
        return
    identity = f"{run.id}.{layer}.{rows[0]['position']}.{len(rows)}"
    table = plots.columns(rows)
    tables.table(LASSO, table, key="groups_lasso", identity=identity, label="Tokens inside the lasso")


def fit_panel(tokens: int | None) -> None:
    """Fit a router without training, for any model: a long job with its price, then the router is chosen."""
    help = cached.glossary("fit without training")
    st.caption("Sorts the model's own vectors of the bundled samples into groups. Nothing is trained.", help=help)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        groups = st.number_input("Groups", 2, 64, 8, key="fit_groups", width=140)
        help = cached.glossary("membership (top-k)")
        top = st.number_input("Groups per token", 1, 4, 1, key="fit_top", width=160, help=help)
        longer = "Three more readings, of the story: dense, with this router and with random centroids."
        measure = st.toggle("Measure perplexity too", key="fit_measure", help=longer)
    args: dict[str, Any] = {"model": st.session_state["model"], "groups": int(groups), "top": int(top)}
    request = FitRouter(**args, measure=measure)
    jobs.run_button("Fit without training", request, "fit_run", tokens)
