"""The tab on routing collapse: does balance hold while training, with softmax and with Sinkhorn?"""

import streamlit as st

from analysis import papers
from analysis.runs.stored import StoredStudy
from app import cached
from app.selection.evidence import COLLAPSE_MEASURES, COLLAPSE_ROWS
from app.training import collapse_charts
from app.ui import stored, tables, widgets

OF_PAPER = {  # a row of the study -> the row of the paper's table 8
    "entropy and balance loss": "Entropy + balance loss",
    "stop-gradient on inputs": "Stop-gradient on inputs",
    "EMA centroids": "EMA centroids + proj",
    "recluster every 100 steps": "Recluster every 100 steps",
    "balance weight x5": "Balance weight x5",
    "sinkhorn": "Sinkhorn (ours)",
}
PHASES = {"balance loss": "Softmax + balance loss", "sinkhorn": "Sinkhorn"}  # likewise in section 4
SHARE = cached.glossary("largest group's share (dominance)")
SAME = cached.glossary("stability")
TABLE_8 = {
    "row": tables.Column("what is tried"),
    "a": tables.Column("A: cosine", "number", help=cached.glossary("paths of collapse")),
    "a_paper": tables.Column("paper"),
    "b": tables.Column("B: drift", "number", 3, help=cached.glossary("paths of collapse")),
    "b_paper": tables.Column("paper"),
    "c": tables.Column("C: rank", "number", 1, help=cached.glossary("paths of collapse")),
    "c_paper": tables.Column("paper"),
    "first": tables.Column("share, phase 1", "share", help=SHARE),
    "second": tables.Column("share, phase 2", "share", help=SHARE),
    "collapsed": tables.Column("over 90% at", "whole", help="first step at which a layer's largest group held 90%"),
    "outcome": tables.Column("paper: outcome"),
}
SECTION_4 = {
    "row": tables.Column("balance by"),
    "whose": tables.Column("measured"),
    "share_1": tables.Column("share, phase 1", "share", help=SHARE),
    "stability_1": tables.Column("stability, phase 1", "number", 3, help=SAME),
    "share_2": tables.Column("share, phase 2", "share", help=SHARE),
    "stability_2": tables.Column("stability, phase 2", "number", 3, help=SAME),
}


def tab() -> None:
    """The study's sentence, curves over the steps, table 8 and the two phases beside the paper's numbers."""
    study = stored.opened("dominance", "Routing collapse")
    if study is None:
        return
    names = [row["row"] for row in study.rows]
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.segmented_control(
            "Rows", list(COLLAPSE_ROWS), format_func=COLLAPSE_ROWS.get, key="collapse_rows", required=True
        )
        st.selectbox(
            "Follow",
            list(COLLAPSE_MEASURES),
            format_func=lambda key: COLLAPSE_MEASURES[key][0],
            key="collapse_measure",
            width=220,
            help=cached.glossary("paths of collapse"),
        )
    measure, two = st.session_state["collapse_measure"], st.session_state["collapse_rows"] == "two"
    rows = [row for row in names if row in collapse_charts.KNOWN] if two else names
    points = [point for point in study.numbers["curves"] if point["row"] in (rows or names)]
    widgets.chart(
        collapse_charts.curves(study.numbers, rows or names, measure, every_layer=two),
        {name: [point[name] for point in points] for name in ("row", "phase", "step", "layer", measure)},
        title=f"{COLLAPSE_MEASURES[measure][0]} over the steps",
        key="collapse_curves",
        alt="What is followed over the steps of phase 1 and phase 2, for each way of balancing, with 1/K and chance",
        help=cached.glossary("largest group's share (dominance)"),
    )
    thin = "Thick: mean of the layers; thin: each layer. " if two else ""
    st.caption(
        f"{thin}One look counts few tokens, so even perfectly balanced groups show {study.numbers['chance']:.1%} in "
        f"the largest and not {study.numbers['even']:.1%}: values near the dash-dotted line are balanced.",
        help=cached.glossary("largest group's share (dominance)"),
    )
    _table_8(study)
    _phases(study)
    widgets.prose(study.notes, "quiet")
    stored.made(study)


def _table_8(study: StoredStudy) -> None:
    st.subheader("Table 8: what is tried against collapse", anchor=False, help=cached.glossary("paths of collapse"))
    values = {name: [] for name in TABLE_8}
    for row in study.rows:
        printed_cells = papers.find("focus", "table 8", OF_PAPER.get(row["row"], "-"))
        printed = {cell.column: str(cell.value) for cell in printed_cells}
        cells = {"row": row["row"], "a": row["centroid_cosine_2"], "b": row["drift_2"], "c": row["rank_2"]}
        cells |= {f"{path.lower()}_paper": printed.get(path) for path in "ABC"} | {"outcome": printed.get("Outcome")}
        cells |= {"first": row["worst_1"], "second": row["worst_2"], "collapsed": row["collapsed_at"]}
        for name in TABLE_8:
            values[name].append(cells[name])
    tables.table(TABLE_8, values, key="collapse_table", identity="table 8", label="What is tried, measured and printed")
    widgets.numbers(values, "table-8", "collapse_table_8")
    widgets.prose(
        "Measured at the end of phase 2, mean of layers; shares are those of the worst layer on held-out text. In the "
        "paper ✓ means that the path is blocked; it does not say how that was tested.",
        "quiet",
    )


def _phases(study: StoredStudy) -> None:
    st.subheader("The router alone, then the whole model", anchor=False, help=cached.glossary("phase 1 and phase 2"))
    values = {name: [] for name in SECTION_4}
    for row in study.rows:
        if row["row"] not in (*collapse_charts.KNOWN, *PHASES):
            continue
        for whose, cells in (("here", row), ("in the paper", _printed(PHASES.get(row["row"])))):
            if cells:
                for name in SECTION_4:
                    values[name].append({"row": row["row"], "whose": whose}.get(name, cells.get(name)))
    tables.table(
        SECTION_4, values, key="collapse_phases", identity="phases", label="Both phases, here and in the paper"
    )
    widgets.prose(
        "Share: of the largest group, mean of layers. Stability here: tokens that kept their group over the last 20 "
        "steps of phase 1; in phase 2, tokens still in the group where phase 1 left them. The paper defines neither.",
        "quiet",
    )


def _printed(row: str | None) -> dict:
    values = {}
    for cell in papers.find("focus", "section 4", row) if row else ():
        phase = "1" if cell.column.startswith("Centroid-only") else "2"
        if cell.column.endswith("Dominance"):
            values[f"share_{phase}"] = cell.value / 100
        elif cell.column.endswith("Stability"):
            values[f"stability_{phase}"] = cell.value
    return values
