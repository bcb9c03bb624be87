"""Budgets per head: where reading less begins to cost, and how many tokens each head may then read."""

from functools import partial

import streamlit as st

from analysis.runs.stored import StoredStudy
from app import cached
from app.budgets import budget_words, by_hand, calibrate, cap, cost, effect, live, policy, reads
from app.selection import state
from app.selection.sparsify import BUDGET_TABS
from app.ui import jobs, plots, screen, studied, tables, widgets
from app.ui.tabs import drawer, folds

PEARSON = {
    "arm": tables.Column("predicted by"),
    "pooled": tables.Column("all heads", "number", 3, help="over all heads, positions and queries together"),
    "within_head": tables.Column("one head", "number", 3, help="within each head"),
    "within_head_and_position": tables.Column("one stretch", "number", 3, help="of positions, within each head"),
}


def show() -> None:
    """The answer, the map that two sliders move, the card of the policy beside it, the rest folded."""
    chosen = st.session_state
    if chosen["budgets"] == "query":
        state.choose(chosen, budgets="map", budgets_evidence=True)
    job = jobs.current()
    # Once, when a calibration that this page waited for is done: the policy that it made is the one in use.
    if job and (job.verb, job.state) == ("calibrate", "done") and chosen.get("budget_calibrated") != job.id:
        chosen["budget_calibrated"] = job.id
        policy.start_over()
        state.choose(chosen, budget_policy=job.args["name"], budget_token=None)
    # A link that names a measured share, and no other number of keys, moves the slider there.
    if "budget_reads" in chosen[state.LINKED] and chosen["budget_way"] == "stored" and not chosen["budget_cap"]:
        live.read_share(chosen["budget_reads"])
    run = policy.in_use()
    stored = policy.known()
    about = stored.get(chosen["budget_policy"], {})
    refused = budget_words.measured_on(cached.texts(), chosen["text"], about)
    measured = None if refused else reads.found()
    if measured is None:
        screen.answer(budget_words.needs(cached.columns(run, "cells"), run.numbers["window"], about))
    else:
        rows = measured.numbers["rows"]
        sentence = budget_words.breaks(rows, live.stop(run))
        screen.answer(sentence, budget_words.intervals(rows), budget_words.scope(measured.numbers))
    table = cached.columns(run, "cells")
    cells = live.chosen_cells(len(table["head"]), max(table["head"]) + 1)
    found = None if refused else effect.of(run, measured)
    picture, card = screen.picture_and_card("budgets")
    with picture:
        live.show(run, about, measured or reads.example(), found, cells)
    with card, st.container(border=True), widgets.guarded():
        policy.head(table, cells, about)
        if refused:
            policy.refused(refused, about)
        else:
            effect.show(run, found)
        policy.card(stored, run, about)
    folds(
        "budgets",
        BUDGET_TABS,
        {
            "reads": lambda: reads.show(measured, live.stop(run), refused),
            "hand": lambda: by_hand.show(run, cells),
            "cap": lambda: cap.show(run, refused),
            "calibrate": lambda: calibrate.show(stored),
            "cost": lambda: cost.show(run, refused),
        },
    )
    drawer("budgets_evidence", _evidence)


def _evidence() -> None:
    """Stored studies: corpora and contexts, how keys are shared out, and whether the query matters."""
    # A button trains the query router for few steps.
    few = {"steps": 200, "seeds": 1}
    study = partial(studied.section, small=True)
    widgets.each(
        partial(study, "calibration", "Corpora and contexts", "cap"),
        partial(study, "allocation", "By ranks or by ablation?", "keys shared out by ablation"),
        partial(study, "query-router", "Does the query matter?", "query router", more=_correlations, small=few),
    )


def _correlations(stored: StoredStudy) -> None:
    st.subheader("Correlation with the keys a query needs", anchor=False)
    plots.listed(PEARSON, stored.numbers["correlations"], "budget_pearson", "Correlations", height=240)
    parameters = stored.numbers["parameters"]
    widgets.prose(f"{parameters:,} parameters. Within one head and stretch only the query can explain it.", "quiet")
