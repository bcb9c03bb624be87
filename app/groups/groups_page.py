"""Token groups: which tokens did the model learn to treat alike?"""

import streamlit as st

from analysis.commands.groups import Groups, Umap
from app import cached
from app.groups import compared, group_contents
from app.selection import state
from app.selection.look import GROUP_MEASURES, GROUP_VIEWS
from app.ui import charts, export, jobs, painted, plots, tables, take, widgets
from app.ui.reading import reading, rows_of


def show() -> None:
    """The groups of one layer: their shares, what is in them, the text by group, the map of their vectors."""
    run, tokens = reading(
        "Which tokens did the model learn to treat alike?",
        "Focus: groups of tokens that a router learned, beside random groups and shuffled text",
        Groups,
        "Sorting the tokens into groups",
        part={"shuffled": False},
    )
    widgets.prose(run.numbers["sentence"])
    count, layers = run.numbers["K"], cached.columns(run, "layers")
    depth = len(layers["layer"])
    widgets.settled("group", [None, *range(count)], None)
    layer = widgets.layer_pills(depth, depth // 2)
    chosen = st.session_state["group"]
    group, sure = cached.array(run, "group")[layer], cached.array(run, "confidence")[layer]
    here = rows_of(cached.columns(run, "groups"), layer=layer)
    words = rows_of(cached.columns(run, "words"), layer=layer)
    labels = here["label"]

    with st.grid(2, min_column_width=420, gap="large"):
        drawn = charts.shares(here, count, chosen)
        numbers = {name: here[name] for name in ("group", "share", "share_random", "share_shuffled", "confidence")}
        plots.draw(drawn, numbers, f"Share of the tokens in layer {layer}", "groups_shares", "group share")
        with st.container():
            measure = st.session_state["measure"]
            drawn, term = charts.by_layer(layers, measure, count, layer), group_contents.TERMS[measure]
            plots.draw(drawn, layers, GROUP_MEASURES[measure], "groups_layers", term)
            measures = list(GROUP_MEASURES)
            st.segmented_control("By layer", measures, key="measure", required=True, label_visibility="collapsed")

    widgets.router_badge(run.numbers["router"])
    take.offer({"Focus": (run, {"name": "focus", "router": run.request["router"]})}, "groups")
    widgets.notes(run)
    st.subheader("What is in them", anchor=False, help=cached.glossary("purity"))
    tables.table(
        group_contents.COLUMNS,
        group_contents.contents(here, words),
        key="groups_table",
        identity=f"{run.id}.{layer}",
        label="Groups of this layer; choose one to isolate it below",
        selected=None if chosen is None else here["group"].index(chosen),
        on_row=lambda: state.choose(st.session_state, group=painted.clicked("groups_table", "row")),
        release=True,
    )
    st.caption(
        f"Labels by {run.numbers['labels_by']}. Click a row to isolate its group; a second click or Esc releases it."
    )
    if chosen is not None:
        group_contents.marking_words(
            rows_of(words, group=chosen), f"{chosen} ({labels[chosen]})", f"{run.id}.{layer}.{chosen}"
        )

    st.subheader("The text by group", anchor=False, help=cached.glossary("learned group"))

    def isolate(token: int | None) -> None:
        """Show the group of a clicked token alone; None releases it."""
        state.choose(st.session_state, group=None if token is None else int(group[token]))

    paint, palette = [int(g) for g in group], painted.by_group(labels, here["share"])
    painted.painted(
        tokens,
        paint,
        palette,
        key="groups_text",
        identity=f"{run.id}.{layer}",
        tips=[("group", [f"{g} {labels[g]}" for g in group]), ("confidence", [f"{value:.2f}" for value in sure])],
        legend=f"groups of layer {layer}",
        hint="Hover to see a token; click it, or a group, to isolate the group.",
        isolate=chosen,
        on_class=lambda: state.choose(st.session_state, group=painted.clicked("groups_text", "class")),
        on_token=lambda: isolate(painted.clicked("groups_text", "token")),
    )
    title = f"The text by group, layer {layer}"
    export.keep_text(tokens, paint, palette, title=title, key="groups_text", legend=f"groups of layer {layer}")

    view = st.segmented_control(
        "Map of the routing vectors", GROUP_VIEWS, key="view", required=True, help=cached.glossary("UMAP")
    )
    wanted = Umap(**state.study_args(st.session_state, "router", layer=layer))
    stored = cached.store().find(wanted) if view == "UMAP" else None
    if view == "UMAP" and stored is None:
        jobs.run_button("Compute the UMAP of this layer", wanted, "groups_umap", len(group))
    else:
        group_contents.vectors(run, stored, layer, group, tokens, labels, chosen)

    shared = state.study_args(st.session_state, "router")
    controls = st.expander(
        "Every layer beside random centroids and k-means",
        icon=":material/table_chart:",
        key="groups_controls_open",
        on_change="rerun",
    )
    if controls.open:
        with controls, widgets.guarded():
            compared.controls(shared, len(group))
    beside = st.expander(
        "Beside another router",
        icon=":material/compare_arrows:",
        expanded=st.session_state["other"] is not None,
        key="groups_beside_open",
        on_change="rerun",
    )
    if beside.open:
        with beside, widgets.guarded():
            compared.another(shared, layer, labels, len(group))
    with st.expander("Fit another router without training", icon=":material/tune:"):
        group_contents.fit_panel(run.protocol.get("tokens"))
