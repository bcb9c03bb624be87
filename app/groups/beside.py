"""Two more looks at the groups: every layer beside its null controls, and this router beside another one."""

import streamlit as st

from analysis import papers
from app import cached
from app.groups import charts
from app.training import form as training
from app.ui import asking, fields, jobs, stored, tables, widgets
from app.ui.reading import rows_of

BEFORE = "before"  # the second router is this one, as it was before its model was fine-tuned with it
PURITY = cached.glossary("purity")
SECTION_5 = {
    "layer": tables.Column("layer"),
    "share": tables.Column("largest share", "share", help=cached.glossary("largest group's share (dominance)")),
    "share_random": tables.Column("random", "share", help=cached.glossary("random centroids")),
    "share_kmeans": tables.Column("k-means", "share", help=cached.glossary("k-means")),
    "confidence": tables.Column("confidence", "number", help=cached.glossary("confidence")),
    "confidence_random": tables.Column("random", "number", help=cached.glossary("random centroids")),
    "purity": tables.Column("purity", "share", help=PURITY),
    "purity_random": tables.Column("random", "share", help=cached.glossary("random centroids")),
    "purity_kmeans": tables.Column("k-means", "share", help=cached.glossary("k-means")),
    "purity_chance": tables.Column("chance", "share", help=cached.glossary("random group of equal size")),
    "labels": tables.Column("labels, largest group first", wrap=True),
}
MATCHING = {
    "group": tables.Column("group", "whole"),
    "label": tables.Column("label"),
    "other": tables.Column("its partner", "whole", help=cached.glossary("agreement of routers")),
    "tokens": tables.Column("tokens", "whole"),
    "shared": tables.Column("of them in both", "share", full=1.0),
}


def controls(args: dict, tokens: int) -> None:
    """Section 5's table for every layer of this text, with its controls; the paper's numbers stand in the first row."""
    run = asking.ask("group-controls", args, "Sorting by random centroids and by k-means", tokens)
    widgets.prose(run.numbers["sentence"], "more")
    rows = run.numbers["rows"]
    values = section_5(rows)
    widgets.chart(
        charts.purity(rows),
        {name: [row[name] for row in rows] for name in ("layer", "arm", "purity", "purity_random", "share")},
        title="Purity by layer",
        key="groups_purity",
        alt="Mean purity of the groups in each layer, for this router, random centroids, k-means and random sets",
        help=PURITY,
    )
    label = "Groups of every layer and controls"
    tables.table(SECTION_5, values, key="groups_section_5", identity=run.id, label=label, height=620)
    widgets.numbers(values, "section-5", "groups_section_5_rows")
    widgets.prose(
        "Purity here is the mean over tokens. The paper prints one table without naming a layer; its 96% is the "
        "purity of its purest group, and it has no controls.",
        "quiet",
    )


def section_5(rows: list[dict]) -> dict:
    """The rows of `group-controls`, one for each layer, below the paper's."""
    values = {name: [_paper().get(name)] for name in SECTION_5}
    for layer in sorted({row["layer"] for row in rows}):
        measured, random, kmeans = (
            next(row for row in rows if (row["layer"], row["arm"]) == (layer, arm))
            for arm in ("this router", "random centroids", "k-means")
        )
        cells = {"layer": str(layer), "purity_chance": measured["purity_random"]}
        cells |= {name: measured[name] for name in ("share", "confidence", "purity", "labels")}
        cells |= {"share_random": random["share"], "confidence_random": random["confidence"]}
        cells |= {"purity_random": random["purity"], "share_kmeans": kmeans["share"], "purity_kmeans": kmeans["purity"]}
        for name in SECTION_5:
            values[name].append(cells[name])
    return values


def _paper() -> dict:
    printed = papers.find("focus", "section 5")
    sure = next(cell.value for cell in printed if cell.column.startswith("Confidence"))
    largest = next(str(cell.value) for cell in printed if cell.column == "Share of tokens").split("-")[-1]
    labels = ", ".join(str(cell.value) for cell in printed if cell.column == "Category")
    return {"layer": "paper", "share": float(largest) / 100, "confidence": sure, "labels": labels}


def another(args: dict, layer: int, labels: list[str], tokens: int) -> None:
    """A second router of this model, or this one before fine-tuning: how far they agree, and which groups match."""
    facts = training.facts_of(args["router"])
    earlier = facts.get("before")
    offered = [name for name in asking.routers(args["model"]) if name != args["router"]]
    offered = ([BEFORE] if earlier else []) + offered
    persistence()
    if not offered:
        st.info("This model has one router: fit another one below, or train one on the page Train a router.")
        return
    widgets.settled("other", [None, *offered], None)
    look = {"width": 360, "placeholder": "Choose one", "index": None, "help": cached.glossary("agreement of routers")}
    look["format_func"] = lambda name: f"{earlier['router']} before phase 2" if name == BEFORE else name
    chosen = fields.pick(st.selectbox, "Second router", offered, "other", st.session_state["other"], **look)
    if chosen is None:
        return
    pair = {"other": chosen, "other_model": ""}
    if chosen == BEFORE:
        pair = {"other": earlier["router"], "other_model": earlier["model"]}
    run = asking.ask("compare", args | pair, "Matching the groups of both routers", tokens)
    widgets.prose(run.numbers["sentence"])
    rows, cells = run.numbers["layers"], rows_of(cached.columns(run, "confusion"), layer=layer)
    matched = rows_of(cached.columns(run, "matching"), layer=layer)
    with st.grid(2, min_column_width=420, gap="large"):
        widgets.chart(
            charts.agreement(rows, layer),
            {name: [row[name] for row in rows] for name in rows[0]},
            title="Tokens in matching groups",
            key="groups_agreement",
            alt="Share of tokens in matching groups in each layer, beside shuffled labels",
            help=cached.glossary("agreement of routers"),
        )
        widgets.chart(
            charts.confusion(cells, st.session_state["router"], pair["other"]),
            cells,
            title=f"Groups of layer {layer}, matched",
            key="groups_confusion",
            alt="Tokens of each group of this router by group of the other, matched groups on the diagonal",
            help=cached.glossary("agreement of routers"),
        )
    matched = matched | {"label": [labels[group] for group in matched["group"]]}
    tables.table(MATCHING, matched, key="groups_matching", identity=f"{run.id}.{layer}", label="Groups and partners")
    if chosen != BEFORE:
        st.button(f"Use the router {chosen}", key="groups_use_other", on_click=jobs.use_router, args=(chosen,))


def persistence() -> None:
    """What the stored study of collapse says about groups that live through fine-tuning."""
    study = stored.study("dominance")
    if study is None:
        return
    stability = {row["row"]: row["stability_2"] for row in study.rows if row["row"] in ("softmax", "sinkhorn")}
    spelled = " and ".join(f"{share:.0%} with {name}" for name, share in stability.items())
    if spelled:
        widgets.prose(
            f"Phase 2 trained the whole model for {study.protocol.steps or 0:,} steps in the stored study. "
            f"After it, so many held-out tokens were still in their group of phase 1, groups matched: {spelled}. By "
            f"chance, even groups keep a little over {study.numbers['even']:.1%}.",
            "quiet",
        )
