"""Groups: which tokens did the model learn to treat alike?"""

from collections.abc import Callable
from typing import Any

import numpy as np
import streamlit as st

from analysis.commands.groups import Groups, Umap
from analysis.runs import Run
from app import cached
from app.groups import compared, group_contents
from app.selection import state
from app.selection.look import GROUP_MEASURES, GROUP_VIEWS
from app.start import pair_list, screen
from app.start.screen import SHUFFLED
from app.ui import asking, charts, export, fields, jobs, packed, painted, plots, tables, take, widgets
from app.ui.reading import rows_of
from app.ui.screen import answer
from app.ui.tabs import drawer


def show() -> None:
    """The text by the groups of one layer, and the map of these groups beside it."""
    first, tokens = screen.read_text()
    request = cached.request(Groups, **state.study_args(st.session_state, "router", **screen.same_windows(first)))
    run = asking.in_parts(
        request, {"shuffled": False}, "Sorting the tokens into groups", SHUFFLED, len(tokens["piece"])
    )
    count, layers = run.numbers["K"], cached.columns(run, "layers")
    widgets.settled("group", [None, *range(count)], None)
    numbers = layers["layer"]
    middle = numbers[len(numbers) // 2]
    widgets.settled("layer", [None, *numbers], None)
    layer = middle if st.session_state["layer"] is None else st.session_state["layer"]
    answer(*_answer(run, layer))
    with screen.read_line(first, tokens):
        named = "Layer {}".format
        collapsed: dict[str, Any] = {"label_visibility": "collapsed", "format_func": named, "width": 120}
        fields.pick(st.selectbox, "Layer", numbers, "layer", layer, **collapsed)
    place = numbers.index(layer)
    group, sure = cached.array(run, "group")[place], cached.array(run, "confidence")[place]
    here = rows_of(cached.columns(run, "groups"), layer=layer)
    labels, chosen = here["label"], st.session_state["group"]
    tips = [("group", [f"{g} {labels[g]}" for g in group]), ("confidence", [f"{value:.2f}" for value in sure])]
    paint, palette = [int(g) for g in group], painted.by_group(labels, here["share"])
    identity, legend = f"{run.id}.{layer}", f"groups of layer {layer}; click one to see it alone"
    groups = {"isolates": True, "isolate": chosen}
    shape, place = _map(run, layer), screen.the_text()
    look = screen.Look("groups_text", paint, palette, legend, identity, tips, "map", shape, groups, place=place)
    screen.show(first, tokens, pair_list.listed(first, tokens), look)
    below = st.container()

    shared, size = state.study_args(st.session_state, "router"), len(group)
    folded: list[tuple[str, Callable[[], None], list[str], str, str]] = [
        ("more", lambda: _details(run, layer, tokens, paint, palette), ["measure", "view"], "Details", "table_chart"),
        ("controls", lambda: compared.controls(shared, size), [], "Beside random centroids and k-means", "table_chart"),
        (
            "beside",
            lambda: compared.another(shared, layer, labels, size),
            ["other"],
            "Another router",
            "compare_arrows",
        ),
        ("fit", lambda: group_contents.fit_panel(size), [], "Fit another router", "tune"),
    ]
    for name, draw, holds, title, icon in folded:
        drawer(f"groups_{name}", draw, holds, title, f":material/{icon}:")
    widgets.notes(run)
    with below, widgets.guarded():
        screen.measure()


def _answer(run: Run, layer: int) -> tuple[str, str]:
    """The largest group of a layer, and what chance and the null controls give."""
    row = rows_of(cached.columns(run, "layers"), layer=layer)
    share = {name: row[name][0] for name in ("dominance", "dominance_random", "dominance_shuffled", "balanced")}
    nulls = [f"balanced chance {share['balanced']:.0%}"]
    for name in ("random", "shuffled"):
        if share[f"dominance_{name}"] is not None:
            nulls.append(f"{name} {share[f'dominance_{name}']:.0%}")
    answer = f"Layer {layer}: the largest of {run.numbers['K']} groups holds {share['dominance']:.0%} of the tokens."
    return answer, f"Of that many tokens: {', '.join(nulls)}. {run.numbers['sentence']}"


def _map(run: Run, layer: int) -> dict:
    """The routing vectors of a layer in two principal components, as the browser draws them."""
    place = cached.columns(run, "layers")["layer"].index(layer)
    xy, variance = cached.array(run, "pca")[place], cached.array(run, "pca_variance")[place]
    ranges = [[float(xy[:, axis].min()), float(xy[:, axis].max())] for axis in (0, 1)]
    axes = f"Components 1 and 2: {variance[0]:.0%} and {variance[1]:.0%} of the variance"
    return {"xy": packed.sent(xy.astype(np.float32)), "ranges": ranges, "axes": axes}


def _details(run: Run, layer: int, tokens: dict, paint: list[int], palette: list[dict]) -> None:
    """Shares and purity with their controls, the words of each group, the map with a lasso, and the router."""
    count, layers, chosen = run.numbers["K"], cached.columns(run, "layers"), st.session_state["group"]
    here = rows_of(cached.columns(run, "groups"), layer=layer)
    words = rows_of(cached.columns(run, "words"), layer=layer)
    title = f"The text by group, layer {layer}"
    export.keep_text(tokens, paint, palette, title=title, key="groups_text", legend=f"groups of layer {layer}")
    with st.grid(2, min_column_width=420, gap="large"):
        drawn = charts.shares(here, count, chosen)
        numbers = {name: here[name] for name in ("group", "share", "share_random", "share_shuffled", "confidence")}
        plots.draw(drawn, numbers, f"Share of the tokens in layer {layer}", "groups_shares", "group share")
        with st.container():
            measure = st.session_state["measure"]
            drawn, term = charts.by_layer(layers, measure, count, layer), group_contents.TERMS[measure]
            plots.draw(drawn, layers, GROUP_MEASURES[measure], "groups_layers", term)
            look: dict[str, Any] = {"required": True, "label_visibility": "collapsed"}
            st.segmented_control("By layer", list(GROUP_MEASURES), key="measure", **look)
    _contents(run, here, words, layer)
    if chosen is not None:
        label, identity = f"Words that mark group {chosen} ({here['label'][chosen]})", f"{run.id}.{layer}.{chosen}"
        widgets.prose(label, "more")
        marking = rows_of(words, group=chosen)
        columns = {
            "word": tables.Column("word"),
            "count": tables.Column("count", "whole", full=max(marking["count"], default=1)),
            "lift": tables.Column("lift", "number", help=cached.glossary("lift")),
        }
        tables.table(columns, marking, key="groups_words", identity=identity, label=label, height=300)
    look = {"key": "view", "required": True, "help": cached.glossary("UMAP")}
    view = st.segmented_control("Map of the routing vectors", GROUP_VIEWS, **look)
    wanted = Umap(**state.study_args(st.session_state, "router", layer=layer))
    stored = cached.store().find(wanted) if view == "UMAP" else None
    if view == "UMAP" and stored is None:
        jobs.run_button("Compute the UMAP of this layer", wanted, "groups_umap", len(paint))
    else:
        group_contents.vectors(run, stored, layer, np.array(paint), tokens, here["label"], chosen)
    widgets.router_badge(run.numbers["router"])
    take.offer({"Focus": (run, {"name": "focus", "router": run.request["router"]})}, "groups")
    widgets.source(run)


def _contents(run: Run, here: dict, words: dict, layer: int) -> None:
    chosen = st.session_state["group"]
    st.subheader("What is in them", anchor=False, help=cached.glossary("purity"))
    tables.table(
        group_contents.COLUMNS,
        group_contents.contents(here, words),
        key="groups_table",
        identity=f"{run.id}.{layer}",
        label="Groups of this layer; choose one to isolate it above",
        selected=None if chosen is None else here["group"].index(chosen),
        on_row=lambda: state.choose(st.session_state, group=painted.clicked("groups_table", "row")),
        release=True,
    )
    st.caption(f"Labels by {run.numbers['labels_by']}.")
