"""KV budgets: how many keys does each head need, and where does it break?"""

import streamlit as st

from app import cached
from app.budgets import budget_words, calibrate, cap, cost, evidence, keys_per_head, policy, reads
from app.selection import state
from app.selection.sparsify import BUDGET_TABS
from app.ui import widgets
from app.ui.tabs import drawer, tabs


def show() -> None:
    """How many keys each head needs, and where reading fewer breaks."""
    widgets.header(
        "How many keys does each head need, and where does it break?",
        "Calibrated Sparse Attention: every head reads a budget of keys, those with the largest scores, and no others",
    )
    chosen = st.session_state
    if chosen["budgets"] == "query":
        state.choose(chosen, budgets="map", budgets_evidence=True)
    answer = st.container()
    policy.take_new()
    stored = policy.known()
    slot = policy.policy_row(stored)
    run = policy.in_use()
    if chosen["budget_policy"] not in stored:  # the first time, asking for it has made it
        stored = policy.known()
    about = stored.get(chosen["budget_policy"], {})
    with answer:
        widgets.prose(budget_words.needs(cached.columns(run, "cells"), about))
        measured = reads.found()
        if measured is not None:
            widgets.prose(budget_words.breaks(measured.numbers["rows"]), "more")
    with slot:
        policy.download(run)
    tabs(
        "budgets",
        BUDGET_TABS,
        {
            "map": lambda: keys_per_head.tab(run, stored),
            "reads": lambda: reads.tab(stored),
            "cap": lambda: cap.tab(stored),
            "calibrate": lambda: calibrate.tab(stored),
            "cost": lambda: cost.tab(run, stored),
        },
    )
    drawer("budgets_evidence", lambda: widgets.each(evidence.corpora, evidence.allocation, evidence.query))
