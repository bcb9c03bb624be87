"""What the policy in use does to the text in use: found among what was measured, or a button that measures it."""

import re
from typing import Any

import streamlit as st

from analysis.commands.budgets import CapSweep
from analysis.errors import BadSetting
from analysis.runs import Run
from app import cached
from app.budgets import live, policy, reads
from app.budgets.budget_words import positions, share, span
from app.ui import jobs, widgets

MOST_CAPS = 32
SWEEP: dict[str, Any] = {"tolerance": 0.01, "tolerance_bin": 0.02, "window": None, "tokens": 16_384, "seed": 0}


def cap_sweep(recipe: dict, caps: list[int]) -> CapSweep:
    """A policy under caps, on the text in use."""
    chosen = st.session_state
    return CapSweep(model=chosen["model"], texts=[chosen["text"]], policy=recipe, caps=caps, **SWEEP)


def caps(raw: str) -> list[int]:
    """The caps of a list such as "32, 64, 1k". Errors: BadSetting."""
    words = re.split(r"[ ,]+", raw.strip(" ,"))
    try:
        values = [int(word[:-1]) * 1024 if word[-1:] in "kK" and word[:-1] else int(word) for word in words]
    except ValueError:
        values = []
    if not 1 <= len(values) <= MOST_CAPS or not all(1 <= cap <= 1 << 20 for cap in values):
        raise BadSetting(
            f"“{raw[:40]}” is not a list of caps: give 1 to {MOST_CAPS} whole numbers such as 32, 64, 128."
        )
    return sorted(set(values))


def tolerances() -> tuple[float, float]:
    """What a cap may change on average and at any stretch, as shares or in perplexity."""
    chosen = st.session_state
    scale = 1 if chosen["budget_judged"] == "perplexity" else 100
    return chosen["budget_tolerance"] / scale, chosen["budget_tolerance_bin"] / scale


def of(run: Run, measured: Run | None) -> dict | None:
    """The measured row of exactly the policy in use: of the curve by shares, of its own measurement, or of the usual
    sweep of caps."""
    chosen = st.session_state
    uncapped = chosen["budget_way"] == "reads" and not chosen["budget_edits"] and chosen["budget_cap"] == live.NO_CAP
    if measured is not None and uncapped:
        row = next((row for row in measured.numbers["rows"] if row["share"] == chosen["budget_size"] / 100), None)
        if row is not None:
            return row
    recipe, cap = policy.recipe(), run.numbers["cap"]
    without = {name: value for name, value in recipe.items() if name != "cap"}
    for request in (cap_sweep(recipe, [cap]), cap_sweep(without, caps(chosen["budget_caps"]))):
        sweep = cached.store().find(request)
        for row in sweep.numbers["sweep"] if sweep else ():
            if row["cap"] == cap:
                return row
    return None


def show(run: Run, found: dict | None) -> None:
    """The loss of the policy in use with its interval, or what measures it; first of all the curve by shares."""
    if found is not None:
        words = f"Perplexity {span(found)}; worst at {positions(found)}."
        widgets.prose(words, "more")
    curve = reads.request()
    if cached.store().find(curve) is None:
        jobs.run_button("Measure where it breaks", curve, "budget_reads_run", type="primary")
    elif found is None:
        label = f"Measure this at {share(run.numbers['reads_causal'])}"
        jobs.run_button(label, cap_sweep(policy.recipe(), [run.numbers["cap"]]), "budget_measure")
