"""The smallest cap that changes no position: a sweep of this text, tolerances judged at once."""

from functools import partial

import streamlit as st

from analysis.runs import Run
from analysis.runs.caps import judged, limits_of
from app import cached
from app.budgets import budget_charts, policy
from app.budgets.budget_words import positions, shared, signed, span
from app.budgets.effect import cap_sweep, caps, tolerances
from app.selection import state
from app.selection.sparsify import JUDGED
from app.ui import fields, jobs, plots, tables, widgets
from app.ui.offers import Scope

COLUMNS = {
    "cap": tables.Column("cap", "whole"),
    "verdict": tables.Column("verdict"),
    "change": tables.Column("change (95% interval)"),
    "worst": tables.Column("worst stretch"),
    "reads_causal": tables.Column("reads", "share", help="of the causal pairs"),
    "reads_full": tables.Column("of T × T", "share", help=cached.glossary("two denominators of reads")),
    "shared": tables.Column("per key-value head", help=cached.glossary("reads per key-value head")),
    "attended": tables.Column("keys", "number", 1, help="that a query reads on average"),
    "perplexity": tables.Column("perplexity", "number"),
}


def show(run: Run, refused: str | None) -> None:
    """The form, the sweep and its judgement. `run`: the policy in use."""
    if refused:
        widgets.prose(refused, "note")
        return
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.text_input("Caps, tokens", key="budget_caps", width=260, max_chars=80, help=cached.glossary("cap"))
        term = "tolerances of the cap"
        fields.choose("What may change", JUDGED, "budget_judged", term, width=200)
        unit = "" if st.session_state["budget_judged"] == "perplexity" else " %"
        fields.number(f"On average, at most{unit}", "budget_tolerance", 0.0, 100.0, term, step=0.5, width=190)
        fields.number(f"At any stretch, at most{unit}", "budget_tolerance_bin", 0.0, 100.0, step=0.5, width=190)
    recipe = {key: value for key, value in policy.recipe().items() if key != "cap"}
    tried = caps(st.session_state["budget_caps"])
    request = cap_sweep(recipe, tried)
    sweep = cached.store().find(request)
    both = st.session_state["budget_judged"] != "rise"
    # A sweep of an earlier version knows one side.
    if sweep is None or both and any("stretches" not in row["select"] for row in sweep.numbers["sweep"]):
        label = f"Try {len(tried)} caps on this text"
        less = partial(smaller, tried)
        jobs.run_button(label, request, "budget_sweep_run", stored=sweep, smaller=less, type="primary")
    if sweep is not None:
        _judged(sweep, run.numbers["beta"])


def _judged(run: Run, beta: float) -> None:
    (allowed, allowed_bin), by = tolerances(), st.session_state["budget_judged"]
    verdicts = judged(run.numbers["sweep"], allowed, allowed_bin, by)
    widgets.prose(verdicts["sentence"], "more")
    rows, cap = verdicts["sweep"], verdicts["cap"]
    listed = []
    for row in rows:
        limits = limits_of(row["select"], by)
        if row["passes"]:
            verdict = "chosen" if row["cap"] == cap else "passes"
        elif limits is None:
            verdict = "too little text"
        else:
            outside = limits.outside(allowed, allowed_bin)
            verdict = f"fails: {' and '.join(part for part, out in outside.items() if out)}"
        worst = f"{signed(row['worst_bin_difference'])} at {positions(row, False)}"
        listed.append(row | {"verdict": verdict, "change": span(row), "shared": shared(row), "worst": worst})
    table = plots.columns(listed, *COLUMNS)
    marked = table["cap"].index(cap) if cap else None
    identity = f"{run.id}.{by}.{allowed}.{allowed_bin}"
    plots.listed(COLUMNS, table, "budget_sweep", "Caps, the chosen one marked", identity, selected=marked, height=300)
    if cap is None:
        twice = partial(state.choose, st.session_state, budget_way="beta", budget_size=float(f"{2 * beta:.3g}"))
        st.button("Try it with twice the keys", key="budget_twice", on_click=twice)
    elif cap != st.session_state["budget_cap"]:
        label = f"Put the cap {cap:,} into the policy"
        use = partial(state.choose, st.session_state, budget_cap=cap)
        st.button(label, key="budget_cap_use", icon=":material/check:", on_click=use)
    figure, bins = budget_charts.sweep(rows, cap, allowed_bin, by == "perplexity"), cached.columns(run, "bins")
    plots.draw(figure, bins, "Change by position under each cap", "budget_sweep_chart", "worst position bin")
    limit = f"{allowed_bin:g}" if by == "perplexity" else f"{100 * allowed_bin:g}%"
    st.caption(f"Dense perplexity {rows[0]['perplexity_dense']:.2f}. Dotted: ± {limit}.")
    widgets.notes(run)
    widgets.source(run)


def smaller(tried: list[int]) -> list[Scope]:
    """The first half of the caps."""
    fewer = tried[: len(tried) // 2]
    controls, share = {"budget_caps": ", ".join(map(str, fewer))}, (1 + len(fewer)) / (1 + len(tried))
    return [Scope(f"{len(fewer)} cap{'s' * (len(fewer) > 1)}", controls, share)] if fewer else []
