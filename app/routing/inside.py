"""Indexers inside the model: what a text that fitted none of them loses where all read the same share of it."""

import streamlit as st

from analysis.claims import Comparison
from analysis.commands.quality import Evaluate
from analysis.runs import Run
from app import cached
from app.routing.bucket_routers import ROUTERS
from app.ui import asking, plots, tables, widgets

# Of the causal pairs, the window and the first tokens included.
SHARE = 0.25
# Tokens of the text: at most so many, since each way is set to the share by several passes.
READ = 1024
NULL = "streaming_llm"
COLUMNS = {
    "title": tables.Column("reads by"),
    "reads_causal": tables.Column("reads", "share"),
    "difference": tables.Column("perplexity over dense", "share"),
    "interval": tables.Column("how sure"),
}


def show(run: Run, key: str) -> None:
    """Every indexer of a run of `route` at equal reads, on the last of the texts that tested it, beside the newest keys
    alone; what takes long waits for its button."""
    texts = run.request.get("texts") or [st.session_state["text"]]
    kinds = [row["kind"] for row in run.numbers["indexers"]]
    specs = [{"name": "indexer", "settings": {"kind": kind}} for kind in kinds]
    size = min(READ, run.request["length"])
    about = {"model": run.request["model"], "text": texts[-1], "window": size, "long_text": "first"}
    request = cached.request(Evaluate, **about, methods=[*specs, {"name": NULL}], share=SHARE, seed=0)
    st.subheader("Inside the model", anchor=False)
    with widgets.guarded():
        inside = asking.ask(request, "Reading a text through each indexer", size)
        rows = [
            row
            | {"title": ROUTERS[row["settings"]["kind"]].title if row["method"] == "indexer" else row["title"]}
            | {"interval": Comparison.of(row, "difference", unit="change").interval}
            for row in inside.numbers["rows"]
        ]
        rows.sort(key=lambda row: row["difference"])
        best = rows[0]
        widgets.prose(
            f"At {best['reads_causal']:.0%} of the pairs {best['title']} loses least: perplexity "
            f"{best['difference']:+.1%}.",
            "more",
        )
        plots.listed(COLUMNS, rows, f"{key}_inside", "Inside the model", f"{inside.id}{inside.created}")
        widgets.prose(inside.numbers["notes"], "quiet")
