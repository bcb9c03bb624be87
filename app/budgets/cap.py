"""The smallest cap that changes no position: a sweep of this text, tolerances judged at once."""

import streamlit as st

from analysis.runs import Run
from analysis.runs.caps import judged
from app import cached
from app.budgets import budget_charts, policy
from app.budgets.budget_words import positions, shared, signed, span
from app.budgets.effect import cap_sweep, caps
from app.selection import state
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


def show(refused: str | None) -> None:
    """The form, the sweep and its judgement."""
    if refused:
        widgets.prose(refused, "note")
        return
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.text_input("Caps, tokens", key="budget_caps", width=260, max_chars=80, help=cached.glossary("cap"))
        term = "tolerances of the cap"
        fields.number("Allowed on average, at most %", "budget_tolerance", 0.0, 100.0, term, step=0.5, width=190)
        fields.number("Allowed at any stretch, at most %", "budget_tolerance_bin", 0.0, 100.0, step=0.5, width=190)
    recipe = {key: value for key, value in policy.recipe().items() if key != "cap"}
    tried = caps(st.session_state["budget_caps"])
    request = cap_sweep(recipe, tried)
    run = cached.store().find(request)
    if run is None:
        label = f"Try {len(tried)} caps on this text"
        jobs.run_button(label, request, "budget_sweep_run", smaller=lambda: smaller(tried), type="primary")
        return
    _judged(run)


def _judged(run: Run) -> None:
    allowed, allowed_bin = (st.session_state[name] / 100 for name in ("budget_tolerance", "budget_tolerance_bin"))
    verdicts = judged(run.numbers["sweep"], allowed, allowed_bin)
    widgets.prose(verdicts["sentence"], "more")
    rows, cap = verdicts["sweep"], verdicts["cap"]
    words = [
        {"verdict": _verdict(row, cap, allowed, allowed_bin), "change": span(row), "shared": shared(row)}
        | {"worst": f"{signed(row['worst_bin_difference'])} at {positions(row, False)}"}
        for row in rows
    ]
    table = plots.columns([row | told for row, told in zip(rows, words, strict=True)], *COLUMNS)
    marked = table["cap"].index(cap) if cap else None
    identity = f"{run.id}.{allowed}.{allowed_bin}"
    plots.listed(COLUMNS, table, "budget_sweep", "Caps, the chosen one marked", identity, selected=marked, height=300)
    if cap is None:
        st.button("Try it with twice the keys", key="budget_twice", on_click=_twice)
    elif cap != st.session_state["budget_cap"]:
        label = f"Put the cap {cap:,} into the policy"
        st.button(label, key="budget_cap_use", icon=":material/check:", on_click=_use, args=(cap,))
    figure, bins = budget_charts.sweep(rows, cap, allowed_bin), cached.columns(run, "bins")
    plots.draw(figure, bins, "Change by position under each cap", "budget_sweep_chart", "worst position bin")
    st.caption(f"Dense perplexity {rows[0]['perplexity_dense']:.2f}. Dotted: ± {100 * allowed_bin:g}%.")
    widgets.notes(run)
    widgets.source(run)


def smaller(tried: list[int]) -> list[Scope]:
    """The first half of the caps."""
    fewer = tried[: len(tried) // 2]
    controls, share = {"budget_caps": ", ".join(map(str, fewer))}, (1 + len(fewer)) / (1 + len(tried))
    return [Scope(f"{len(fewer)} cap{'s' * (len(fewer) > 1)}", controls, share)] if fewer else []


def _verdict(row: dict, cap: int | None, allowed: float, allowed_bin: float) -> str:
    if row["passes"]:
        return "chosen" if row["cap"] == cap else "passes"
    side = row["select"]
    if side["upper"] is None or side["worst_bin_upper"] is None:
        return "too little text"
    failures = ["average"] * (side["upper"] > allowed) + ["stretch"] * (side["worst_bin_upper"] > allowed_bin)
    return f"fails: {' and '.join(failures)}"


def _use(cap: int) -> None:
    state.choose(st.session_state, budget_cap=cap)


def _twice() -> None:
    beta = 2 * policy.ask(policy.recipe()).numbers["beta"]
    state.choose(st.session_state, budget_way="beta", budget_size=float(f"{beta:.3g}"))
