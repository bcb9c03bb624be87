"""Two more looks at the groups: every layer beside its null controls, and this router beside another one."""

import streamlit as st

from analysis import papers
from analysis.commands.groups import Compare, GroupControls
from app import cached
from app.groups import group_charts
from app.training import train
from app.ui import asking, chips, fields, plots, tables, widgets
from app.ui.reading import rows_of

# The second router is this one, as it was before its model was fine-tuned with it.
BEFORE = "before"
PURITY, RANDOM, KMEANS, AGREEMENT = (
    cached.glossary(term) for term in ("purity", "random centroids", "k-means", "agreement of routers")
)
SECTION_5 = {
    "layer": tables.Column("layer"),
    "share": tables.Column("largest share", "share", help=cached.glossary("largest group's share (dominance)")),
    "share_random": tables.Column("random", "share", help=RANDOM),
    "share_kmeans": tables.Column("k-means", "share", help=KMEANS),
    "confidence": tables.Column("confidence", "number", help=cached.glossary("confidence")),
    "confidence_random": tables.Column("random", "number", help=RANDOM),
    "purity": tables.Column("purity", "share", help=PURITY),
    "purity_random": tables.Column("random", "share", help=RANDOM),
    "purity_kmeans": tables.Column("k-means", "share", help=KMEANS),
    "purity_chance": tables.Column("chance", "share", help=cached.glossary("random group of equal size")),
    "labels": tables.Column("labels, largest group first", wrap=True),
}
MATCHING = {
    "group": tables.Column("group", "whole"),
    "label": tables.Column("label"),
    "other": tables.Column("its partner", "whole", help=AGREEMENT),
    "tokens": tables.Column("tokens", "whole"),
    "shared": tables.Column("of them in both", "share", full=1.0),
}


def controls(args: dict, tokens: int) -> None:
    """Section 5's table for every layer of this text, with its controls; the paper's numbers stand in the first row."""
    run = asking.ask(GroupControls(**args), "Sorting by random centroids and by k-means", tokens)
    widgets.prose(run.numbers["sentence"], "more")
    rows = run.numbers["rows"]
    figure = group_charts.purity(rows)
    drawn = plots.columns(rows, "layer", "arm", "purity", "purity_random", "share")
    plots.draw(figure, drawn, "Purity by layer", "groups_purity", "purity")
    printed = papers.find("focus", "section 5")
    largest = next(str(cell.value) for cell in printed if cell.column == "Share of tokens").split("-")[-1]
    sure = next(cell.value for cell in printed if cell.column.startswith("Confidence"))
    labels = ", ".join(str(cell.value) for cell in printed if cell.column == "Category")
    listed = [{"layer": "paper", "share": float(largest) / 100, "confidence": sure, "labels": labels}]
    arms = {(row["layer"], row["arm"]): row for row in rows}
    for layer in sorted({row["layer"] for row in rows}):
        ours = arms[layer, "this router"]
        cells = ours | {"layer": str(layer), "purity_chance": ours["purity_random"]}
        for name, arm in (("random", "random centroids"), ("kmeans", "k-means")):
            cells |= {f"{value}_{name}": arms[layer, arm][value] for value in ("share", "confidence", "purity")}
        listed.append(cells)
    table = plots.columns(listed, *SECTION_5)
    plots.listed(SECTION_5, table, "groups_section_5", "Groups of every layer and controls", run.id, height=620)
    widgets.prose(
        "Purity here is the mean over tokens. The paper prints one table without naming a layer; its 96% is the "
        "purity of its purest group, and it has no controls.",
        "quiet",
    )


def another(args: dict, layer: int, labels: list[str], tokens: int) -> None:
    """A second router of this model, or this one before fine-tuning: how far they agree, and which groups match."""
    earlier = train.facts_of(args["router"]).get("before")
    names = {BEFORE: f"{earlier['router']} before phase 2"} if earlier else {}
    names |= {name: name for name in asking.routers(args["model"]) if name != args["router"]}
    if not names:
        st.info("This model has one router: fit another one below, or train one on the page Train a router.")
        return
    widgets.settled("other", [None, *names], None)
    look = {"width": 360, "placeholder": "Choose one", "index": None, "help": AGREEMENT, "format_func": names.get}
    chosen = fields.pick(st.selectbox, "Second router", list(names), "other", st.session_state["other"], **look)
    if chosen is None:
        return
    other, model = (earlier["router"], earlier["model"]) if earlier and chosen == BEFORE else (chosen, "")
    request = Compare(**args, other=other, other_model=model)
    run = asking.ask(request, "Matching the groups of both routers", tokens)
    widgets.prose(run.numbers["sentence"])
    rows, cells = run.numbers["layers"], rows_of(cached.columns(run, "confusion"), layer=layer)
    term = "agreement of routers"
    with st.grid(2, min_column_width=420, gap="large"):
        figure = group_charts.agreement(rows, layer)
        plots.draw(figure, rows, "Tokens in matching groups", "groups_agreement", term)
        figure = group_charts.confusion(cells, args["router"], other)
        plots.draw(figure, cells, f"Groups of layer {layer}, matched", "groups_confusion", term)
    matched = rows_of(cached.columns(run, "matching"), layer=layer)
    matched = matched | {"label": [labels[group] for group in matched["group"]]}
    tables.table(MATCHING, matched, key="groups_matching", identity=f"{run.id}.{layer}", label="Groups and partners")
    if chosen != BEFORE:
        st.button(f"Use the router {chosen}", key="groups_use_other", on_click=chips.use_router, args=(chosen,))
