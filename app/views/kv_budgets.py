"""KV budgets: how many keys does each head need, and where does it break?"""

import streamlit as st

from app import cached
from app.budgets import by_hand, calibrate, cap, cost, policy, query, reads, words
from app.selection import state
from app.ui import widgets

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
stored = policy.known()
slot = policy.policy_row(stored)
run = policy.in_use()
if chosen["budget_policy"] not in stored:  # the first time, asking for it has made it
    stored = policy.known()
about = stored.get(chosen["budget_policy"], {})
with answer:
    widgets.prose(words.needs(cached.columns(run, "cells"), about.get("mass")))
    measured = reads.found()
    if measured is not None:
        widgets.prose(words.breaks(measured.numbers["rows"]), "more")
with slot:
    policy.download(run)
chosen["budgets_pick"] = TABS[chosen["budgets"]]


def switched() -> None:
    """Keep the tab that was opened."""
    state.choose(chosen, budgets=next(name for name, label in TABS.items() if label == chosen["budgets_pick"]))


rooms = {
    "map": lambda: by_hand.tab(run, stored),
    "reads": lambda: reads.tab(stored),
    "cap": lambda: cap.tab(stored),
    "calibrate": lambda: calibrate.tab(stored),
    "query": query.tab,
    "cost": lambda: cost.tab(run, stored),
}
shown = st.tabs(list(TABS.values()), key="budgets_pick", on_change=switched)
for tab, room in zip(shown, rooms.values(), strict=True):
    if tab.open:
        with tab, widgets.guarded():
            room()
