"""KV budgets: how many keys does each head need, and where does it break?"""

import streamlit as st

from app import (
    budgets,
    budgets_calibrate,
    budgets_cap,
    budgets_cost,
    budgets_map,
    budgets_query,
    budgets_reads,
    budgets_words,
    cached,
    state,
    widgets,
)

TABS = {
    "map": "Keys per head",
    "reads": "Where it breaks",
    "cap": "Smallest cap",
    "calibrate": "Calibrate",
    "query": "Does the query matter?",
    "cost": "Cost",
}

widgets.header(
    "How many keys does each head need, and where does it break?",
    "Calibrated Sparse Attention: every head reads its budget of keys, those of largest score, and no others",
)
chosen = st.session_state
answer = st.container()
stored = budgets.known()
slot = budgets.policy_row(stored)
run = budgets.in_use()
if chosen["budget_policy"] not in stored:  # the first time, asking for it has made it
    stored = budgets.known()
about = stored.get(chosen["budget_policy"], {})
with answer:
    widgets.prose(budgets_words.needs(cached.columns(run, "cells"), about.get("mass")))
    measured = budgets_reads.found()
    if measured is not None:
        widgets.prose(budgets_words.breaks(measured.numbers["rows"]), "more")
with slot:
    budgets.download(run)
chosen["budgets_pick"] = TABS[chosen["budgets"]]


def switched() -> None:
    """Keep the tab that was opened."""
    state.choose(chosen, budgets=next(name for name, label in TABS.items() if label == chosen["budgets_pick"]))


rooms = {
    "map": lambda: budgets_map.tab(run, stored),
    "reads": lambda: budgets_reads.tab(stored),
    "cap": lambda: budgets_cap.tab(stored),
    "calibrate": lambda: budgets_calibrate.tab(stored),
    "query": budgets_query.tab,
    "cost": lambda: budgets_cost.tab(run, stored),
}
shown = st.tabs(list(TABS.values()), key="budgets_pick", on_change=switched)
for tab, room in zip(shown, rooms.values(), strict=True):
    if tab.open:
        with tab, widgets.guarded():
            room()
