"""Tabs of Train a router beside the training: routing collapse, balance by hand, the causality check, ablations."""

import streamlit as st

from analysis import papers
from analysis.commands.groups import Balance
from analysis.package import PROGRAM
from analysis.runs import Run
from analysis.studies.registry import ABLATIONS, STORED, of_file
from app import cached
from app.selection import state
from app.selection.evidence import COLLAPSE_MEASURES, COLLAPSE_ROWS, ROUTER_TEMPERATURES
from app.training import training_charts, tuning
from app.ui import asking, fields, plots, studied, tables, widgets

DOMINANCE = "largest group's share (dominance)"
PATHS, SHARE, SAME = (cached.glossary(term) for term in ("paths of collapse", DOMINANCE, "stability"))
DEAD = "groups that hold less than a tenth of their even share of the tokens, mean of layers, at the end of phase 2"
OVER = "first look, every 20 steps on training tokens, at which a layer of any training had 90% in one group"
# A row of the study -> the row of the paper's table 8.
OF_PAPER = {
    "entropy and balance loss": "Entropy + balance loss",
    "stop-gradient on inputs": "Stop-gradient on inputs",
    "EMA centroids": "EMA centroids + proj",
    "recluster every 100 steps": "Recluster every 100 steps",
    "balance weight x5": "Balance weight x5",
    "sinkhorn": "Sinkhorn (ours)",
}
PHASES = {"balance loss tuned": "Softmax + balance loss", "sinkhorn": "Sinkhorn"}  # likewise in section 4
TABLE_8 = {
    "row": tables.Column("what is tried"),
    "centroid_cosine_2": tables.Column("A: cosine", "number", help=PATHS),
    "A": tables.Column("paper"),
    "drift_2": tables.Column("B: drift", "number", 3, help=PATHS),
    "B": tables.Column("paper"),
    "rank_2": tables.Column("C: rank", "number", 1, help=PATHS),
    "C": tables.Column("paper"),
    "worst_1": tables.Column("share, phase 1", "share", help=SHARE),
    "worst_2": tables.Column("share, phase 2", "share", help=SHARE),
    "dead_2": tables.Column("dead groups", "number", 1, help=DEAD),
    "collapsed_at": tables.Column("over 90% at", "whole", help=OVER),
    "Outcome": tables.Column("paper: outcome"),
}
SECTION_4 = {
    "row": tables.Column("balance by"),
    "whose": tables.Column("measured"),
    "share_1": tables.Column("share, phase 1", "share", help=SHARE),
    "stability_1": tables.Column("stability, phase 1", "number", 3, help=SAME),
    "share_2": tables.Column("share, phase 2", "share", help=SHARE),
    "stability_2": tables.Column("stability, phase 2", "number", 3, help=SAME),
}
GATES = {
    "reading": tables.Column("groups"),
    "gate": tables.Column("gate", help=cached.glossary("gate")),
    "membership": tables.Column("membership", help=cached.glossary("literal and causal membership")),
    "perplexity": tables.Column("perplexity", "number", help=cached.glossary("perplexity")),
    "pairs_share": tables.Column("pairs read", "share", help=cached.glossary("KV reads (% of causal)")),
    "smallest_gate": tables.Column("smallest gate", "number", 4, help=cached.glossary("gate")),
    "mean_gate": tables.Column("mean gate", "number", 3, help=cached.glossary("gate")),
    "moved": tables.Column("largest move of a logit", "number", 4, help=cached.glossary("causality check")),
    "verdict": tables.Column("verdict", help="whether later tokens move the logits of earlier ones"),
}
# Iterations at which groups look nearly balanced and are not.
TRAP = 3


# --- routing collapse -------------------------------------------------------------------------------------------------


def collapse() -> None:
    """The study's sentence, curves over the steps, table 8 and the two phases beside the paper's numbers."""
    study = studied.opened("dominance", "Routing collapse")
    if study is None:
        return
    measures = {name: title for name, (title, _) in COLLAPSE_MEASURES.items()}
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        fields.switch("Rows", COLLAPSE_ROWS, "collapse_rows")
        fields.choose("Follow", measures, "collapse_measure", "paths of collapse", width=220)
    measure, two = st.session_state["collapse_measure"], st.session_state["collapse_rows"] == "two"
    names = [row["row"] for row in study.rows]
    rows = ([name for name in names if name in training_charts.KNOWN] if two else names) or names
    points = [point for point in study.numbers["curves"] if point["row"] in rows]
    listed = plots.columns(points, "row", "phase", "step", "layer", measure)
    figure = training_charts.collapse(study.numbers, rows, measure, every_layer=two)
    plots.draw(figure, listed, f"{measures[measure]} over the steps", "collapse_curves", DOMINANCE)
    chance, evenly = study.numbers["chance"], study.numbers["even"]
    st.caption(
        f"{'Thick: mean of the layers; thin: each layer. ' if two else ''}One look counts few tokens, so even "
        f"perfectly balanced groups show {chance:.1%} in the largest and not {evenly:.1%}. Curves are of training "
        "tokens, mean of the trainings; the tables below are of held-out text.",
        help=SHARE,
    )
    st.subheader("Table 8: what is tried against collapse", anchor=False, help=PATHS)
    table_8 = []
    for row in study.rows:
        cells = papers.find("focus", "table 8", OF_PAPER.get(row["row"], "-"))
        table_8.append(row | {cell.column: str(cell.value) for cell in cells})
    plots.listed(TABLE_8, table_8, "collapse_table", "What is tried, measured and printed")
    widgets.prose(
        "Measured at the end of phase 2, mean of layers; shares are those of the worst layer on held-out text. In the "
        "paper ✓ means that the path is blocked; it does not say how that was tested.",
        "quiet",
    )
    st.subheader("The router alone, then the whole model", anchor=False, help=cached.glossary("phase 1 and phase 2"))
    section_4 = []
    for row in study.rows:
        if row["row"] in (*training_charts.KNOWN, "balance loss", *PHASES):
            section_4.append(row | {"whose": "here"})
        if printed := _printed(PHASES.get(row["row"])):
            section_4.append({"row": PHASES[row["row"]], "whose": "in the paper"} | printed)
    plots.listed(SECTION_4, section_4, "collapse_phases", "Both phases, here and in the paper")
    widgets.prose(
        "Share: of the largest group, mean of layers. Stability here: tokens that kept their group over the last 20 "
        "steps of phase 1; in phase 2, tokens still in the group where phase 1 left them. The paper defines neither.",
        "quiet",
    )
    widgets.prose(study.notes, "quiet")
    studied.made(study)


def _printed(row: str | None) -> dict:
    values: dict[str, float | str] = {}
    for cell in papers.find("focus", "section 4", row) if row else ():
        phase = "1" if cell.column.startswith("Centroid-only") else "2"
        if cell.column.endswith("Dominance"):
            assert isinstance(cell.value, float), "the paper prints shares as numbers"
            values[f"share_{phase}"] = cell.value / 100
        elif cell.column.endswith("Stability"):
            values[f"stability_{phase}"] = cell.value
    return values


# --- balance by hand --------------------------------------------------------------------------------------------------


def balance() -> None:
    """What temperature and Sinkhorn iterations do to the groups of this text; two sliders, redrawn alone."""
    fields.alone(_balance)


def _balance() -> None:
    chosen = st.session_state
    widgets.prose("The router's scores on the first tokens of your text are balanced anew; nothing is trained.", "more")
    if not 0 <= chosen["balance_iterations"] <= 20:
        state.choose(chosen, balance_iterations=10)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        help, key = cached.glossary("temperature (router)"), "balance_temperature"
        st.select_slider("Temperature", ROUTER_TEMPERATURES, key=key, format_func="{:g}".format, width=330, help=help)
        help = cached.glossary("Sinkhorn iterations")
        st.slider("Sinkhorn iterations", 0, 20, key="balance_iterations", help=help, width=330)
    args = {name: chosen[name] for name in ("model", "text", "router")}
    args |= {name: chosen[f"balance_{name}"] for name in ("temperature", "iterations")}
    run: Run = asking.ask(Balance(**args), "Balancing the groups")
    numbers, layers, steps = run.numbers, cached.columns(run, "layers"), cached.columns(run, "iterations")
    widgets.prose(numbers["sentence"])
    lines = numbers["even"], numbers["chance"]
    with st.grid(2, min_column_width=420, gap="large"):
        figure = training_charts.balance_by_layer(layers, *lines)
        plots.draw(figure, layers, "Largest group by layer", "balance_layers", DOMINANCE)
        figure = training_charts.balance_by_iterations(steps, *lines, chosen["balance_iterations"], TRAP)
        plots.draw(figure, steps, "By number of iterations", "balance_curve", "Sinkhorn iterations")
    few = steps["mass"][steps["iterations"].index(TRAP)]
    trap = (
        f"The trap of {TRAP} iterations: in the worst layer one group still holds {few:.1%} of the assignment, after "
        f"{steps['iterations'][-1]} iterations {steps['mass'][-1]:.1%}."
    )
    widgets.prose([trap, *numbers["notes"]], "quiet")


# --- the causality check ----------------------------------------------------------------------------------------------


def causality() -> None:
    """Does the printed rule read the future, and what does that gain? The difference with its interval, agreement by
    layer, every arm with its verdict."""
    router = st.session_state["router"]
    study = studied.study(name := f"causality-{router}")
    if study is None:
        studied.missing(f"The causality of the router {router}", "causality", small=True, router=router)
        return
    studied.told(name, study)
    term, numbers = "literal and causal membership", study.numbers
    with st.grid(2, min_column_width=420, gap="large"):
        rows = numbers["literal_minus_causal"]
        plots.draw(training_charts.future_gain(rows), rows, "What reading the future gains", "causality_gain", term)
        same = numbers["group_agreement"]
        figure = training_charts.agreement(same, numbers["prediction_agreement"])
        listed = {"layer": list(range(len(same))), "same group": same}
        plots.draw(figure, listed, "Tokens in the same group by both rules", "causality_agreement", term)
    st.subheader("Every form of the gate", anchor=False, help=cached.glossary("gate"))
    verdicts = {True: "reads the future", False: "causal"}
    rows = [row | {"verdict": verdicts[row["reads_future"]]} for row in study.rows]
    plots.listed(GATES, rows, "causality_table", "Arms of the causality check", router)
    widgets.prose(
        "Every form of the gate reads the same window here. The printed gate is a factor between one half and one: it "
        "cannot close, so all pairs are read. The centred form can close the score but not the weight; only log and "
        "hard skip pairs. Left of zero in the chart, the future helps.",
        "quiet",
    )
    studied.made(study)


# --- ablations --------------------------------------------------------------------------------------------------------


def ablations() -> None:
    """The stored studies, and the form that tunes copies."""
    _stored()
    tuning.form()


def _stored() -> None:
    """Every stored study that says what is drawn of it, one at a time: its sentence, its panels, its rows."""
    model = st.session_state["model"]
    stored = {name: asking.study(model, name)[0] for name in asking.study_names(model) if shown_here(name)}
    studies = {name: study for name, study in stored.items() if study and study.panels}
    names = list(studies)
    if not names:
        studied.missing("An ablation", "NAME")
        st.caption(f"The names of the studies stand in: {PROGRAM} study --help")
        return
    widgets.settled("ablation", [None, *names], None)
    default = st.session_state["ablation"] or names[0]
    chosen = fields.pick(st.selectbox, "Study", names, "ablation", default, format_func=_titled, width=480)
    studied.told(chosen, studies[chosen])
    studied.drawn(studies[chosen], "ablation", name=chosen)


def shown_here(name: str) -> bool:
    """Whether the stored study of this name has no other page."""
    study = STORED.get(of_file(name)[0])
    return study is None or study.page == ABLATIONS


def _titled(name: str) -> str:
    kind, router = of_file(name)
    return ", ".join(filter(None, [STORED[kind].title if kind in STORED else kind, router]))
