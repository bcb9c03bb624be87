"""Train a router: does a router learn groups that stay balanced, causal and useful?"""

import streamlit as st

from app.selection import state
from app.training import ablations, balance, causality, collapse, form
from app.ui import asking, widgets

TABS = {
    "train": ("Train", form),
    "collapse": ("Routing collapse", collapse),
    "balance": ("Balance by hand", balance),
    "causality": ("Causality check", causality),
    "ablations": ("Ablations", ablations),
}

widgets.header(
    "Do the groups stay balanced while a router learns?",
    "Training, routing collapse (dominance), ablations, causality check: Focus, sections 2 to 5 and appendices A and B",
)
chosen = st.session_state
asking.settle_router()
with widgets.guarded():
    first, *more = form.answer()
    widgets.prose(first)
    widgets.prose(more, "more")
chosen["evidence_pick"] = TABS[chosen["evidence"]][0]


def switched() -> None:
    """Keep the tab that was opened."""
    state.choose(chosen, evidence=next(name for name, (label, _) in TABS.items() if label == chosen["evidence_pick"]))


shown = st.tabs([label for label, _ in TABS.values()], key="evidence_pick", on_change=switched)
for tab, (_, room) in zip(shown, TABS.values(), strict=True):
    if tab.open:
        with tab, widgets.guarded():
            room.tab()
