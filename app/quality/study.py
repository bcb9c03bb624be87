"""The stored tables behind Quality vs speed: all methods at the same reads, with figure 1 of Focus drawn from it; rules
of eviction by what they remove; prompts read by blocks, by length."""

import streamlit as st

from app import cached
from app.ui import fields, stored, study, tables, widgets

NAME = "equal-budget"
WHY_LAST = (
    "The budget counts the keys in the softmax. What a method scores first, to choose them, counts as fetched (KV "
    "read) and not as budget: Oracle top-k scores every key. It is the ceiling of the attention that so many keys "
    "hold, not of quality: a method that also keeps sinks and a window, or adds a mean for the rest, can lose less."
)


OF = {  # what methods save -> (the stored study, what it is called where it is missing)
    "memory": ("eviction", "Every rule of eviction, by the share of the keys that it removes"),
    "prefill": ("prefill", "Prompts read by blocks, by length"),
}


def show() -> None:
    """The study of the methods that are shown above."""
    saves = st.session_state["quality_saves"]
    if saves == "reads":
        equal_reads()
        return
    name, title = OF[saves]
    numbers = stored.opened(name, title)
    if numbers is not None:
        study.drawn(numbers, f"quality_{name}", name=name)


def equal_reads() -> None:
    """What was found, the means of all methods, one text and context drawn large, all rows, and how it was made."""
    st.header("Equal reads", anchor=False, help=cached.glossary("equal reads"))
    numbers = stored.opened(NAME, "Every method at the same budgets")
    if numbers is None:
        return
    _means(numbers.numbers["means"])
    titles = [panel.title for panel in numbers.panels]
    widgets.settled("equal_panel", [None, *titles], None)
    default = st.session_state["equal_panel"] or titles[0]
    chosen = fields.pick(st.selectbox, "Text and context", titles, "equal_panel", default, width=480)
    study.one(numbers, chosen, "equal", cached.glossary("equal reads"))
    widgets.prose(numbers.notes, "quiet")
    study.rows(NAME, numbers, "equal")
    stored.made(numbers)


def _means(means: list[dict]) -> None:
    shares = list(dict.fromkeys(row["share"] for row in means))
    labels = list(dict.fromkeys(row["label"] for row in means))
    differences = {(row["label"], row["share"]): row["difference"] for row in means}
    columns = {"method": tables.Column("method")}
    columns |= {f"{share:g}": tables.Column(f"at {share:.0%} of the reads", "share") for share in shares}
    values = {"method": labels} | {
        f"{share:g}": [differences.get((label, share)) for label in labels] for share in shares
    }
    st.subheader("Change of perplexity, mean over all texts and contexts", anchor=False)
    tables.table(columns, values, key="equal_means", identity=NAME, label="Mean change of perplexity at each budget")
    widgets.prose(WHY_LAST, "quiet")
