"""The form below the ablations: copies of the model tuned on own texts, by the ways of Focus' tables 1 and 3."""

import streamlit as st

from analysis.benchmarks import here
from analysis.commands import request as requested
from analysis.commands.training import WAYS
from analysis.runs.brought import corpora
from app.ui import fields, jobs, widgets

KEPT = "Every copy stays as a model that all pages can read, of LoRA its small adapter alone."
ASKED = "HellaSwag, ARC-Easy, PIQA, LAMBADA and TruthfulQA, as far as their files are in models_cache/benchmarks."


def form() -> None:
    """One way or all of them, how long, whether the copies stay, and whether they are asked benchmarks."""
    folders = corpora()
    with st.expander("Tune copies of this model", icon=":material/model_training:"):
        if not folders:
            st.caption("Put a folder of texts into models_cache/corpora to tune copies on it.")
            return
        widgets.settled("tuned_method", [None, *WAYS], None)
        with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
            st.selectbox("Way", [None, *WAYS], key="tuned_method", format_func=_titled, width=240)
            fields.number("Steps", "tuned_steps", 1, 1_000_000, "optimiser step", width=140)
            st.checkbox("Keep the copies as models", key="tuned_keep", help=KEPT)
            st.checkbox("Ask the benchmarks", key="tuned_asked", help=ASKED, disabled=not here())
        chosen, texts = st.session_state, st.session_state["train_corpus"]
        args = {"name": "baselines", "model": chosen["model"], "corpus": texts if texts in folders else folders[0]}
        args |= {"steps": chosen["tuned_steps"], "keep": chosen["tuned_keep"], "benchmarks": chosen["tuned_asked"]}
        args |= {"method": chosen["tuned_method"]} if chosen["tuned_method"] else {}
        jobs.run_button("Tune", requested("study", args), "tuned_run")


def _titled(way: str | None) -> str:
    return "all of them" if way is None else way.replace("_", " ")
