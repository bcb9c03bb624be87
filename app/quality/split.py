"""DuoAttention's split of the heads: those that keep every key, beside what this text loses without each."""

import streamlit as st

from app import cached
from app.quality.words import Asked
from app.selection import state
from app.ui import asking, tables, widgets

METHOD = "duo_attention"
TERM = "ablation of a head"
KEEPS = {True: "every key", False: "sinks and a window"}
COLUMNS = {
    "layer": tables.Column("layer", "whole"),
    "head": tables.Column("key-value head", "whole"),
    "rise": tables.Column("loss without it", "number", 4, help="estimated rise on this text, in nats per token"),
    "far": tables.Column("reads far", "share", help="attention to neither the first token nor the last 128"),
    "keeps": tables.Column("keeps", help="by how far it reads, as DuoAttention chooses"),
    "by_loss": tables.Column("would keep by loss", help="if as many heads were chosen by the loss without them"),
}


def show(choice: Asked) -> None:
    """The list of the heads, those that the text would miss most first."""
    args = state.study_args(st.session_state, ratio=choice.settings["ratio"])
    run = asking.ask("head-split", args, "Estimating the loss without each head", asking.inspected()["tokens"])
    widgets.prose(run.numbers["sentence"])
    heads = cached.columns(run, "heads")
    values = {name: heads[name] for name in ("layer", "head", "rise", "far")}
    values |= {"keeps": [KEEPS[keeps_all] for keeps_all in heads["whole"]]}
    values |= {"by_loss": [KEEPS[missed] for missed in heads["missed"]]}
    st.subheader("Heads that this text would miss most", anchor=False, help=cached.glossary(TERM))
    tables.table(COLUMNS, values, key="quality_split_rows", identity=run.id, label="Key-value heads", height=360)
    widgets.numbers(values, "heads-of-duo-attention", "quality_split_numbers")
    widgets.notes(run)
    widgets.source(run)
