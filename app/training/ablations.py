"""The tab on ablations: every stored study that says what is drawn of it, as small multiples with its rows."""

import streamlit as st

from app.selection import state
from app.ui import asking, stored, study as study_panels, widgets

TITLES = {  # study -> its question, and where the paper asks it
    "ablations": "One setting at a time (table 9)",
    "top": "Groups per token (table 7)",
    "lengths": "Longer texts (section 3.5)",
    "finetuning": "Against fine-tuning with full attention (table 5)",
    "baselines": "LoRA and full fine-tuning beside the router (tables 1, 3, 4)",
    "pretraining": "Learning with groups from the start",
    "pruned": "Why less can be more (appendix A)",
}

# Beginnings of studies that another page shows.
OWN_PAGE = ("temperature", "focal-", "length-extension", "equal-budget", "benchmarks")


def tab() -> None:
    """One stored study at a time: its sentence, its panels, its rows, the command."""
    found = asking.studies(st.session_state["model"])[0]
    grids = {name: about for name, about in found.items() if "panels" in about and not name.startswith(OWN_PAGE)}
    if not grids:
        stored.missing("An ablation", "NAME")
        st.caption("The names of the studies stand in: python -m analysis study --help")
        return
    names = list(grids)
    widgets.settled("ablation", [None, *names], None)
    chosen = st.session_state["ablation"] or names[0]
    st.session_state["ablation_pick"] = chosen
    st.selectbox("Study", names, key="ablation_pick", format_func=_titled, on_change=_picked, width=480)
    study = grids[chosen]
    widgets.prose(study["sentence"], "more")
    stored.badge(study)
    study_panels.panels(study, "ablation")
    if any(one["paper"] for panel in study["panels"] for one in panel["series"]):
        st.caption("Dashed with open marks: printed in the paper, on another model and other text; never one scale.")
    study_panels.rows(chosen, study, "ablation")
    widgets.prose(study.get("notes", []), "quiet")
    stored.made(study)


def _titled(name: str) -> str:
    kind, _, router = name.partition("-")
    return f"{TITLES.get(kind, kind)}{f', {router}' if router else ''}"


def _picked() -> None:
    state.choose(st.session_state, ablation=st.session_state["ablation_pick"])
