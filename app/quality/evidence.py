"""Stored studies behind Quality vs speed: all methods at the same reads, with figure 1 of Focus drawn from it; rules of
eviction; prompts read by blocks. And DuoAttention's split of the heads, beside what this text loses without each."""

import streamlit as st

from analysis.commands.quality import HeadSplit
from app import cached
from app.quality.asked import Asked
from app.selection import state
from app.ui import asking, fields, plots, studied, tables, widgets

EQUAL, TIMED = "equal-budget", "figure-one"
WHY_LAST = (
    "The budget counts the keys in the softmax. What a method scores first, to choose them, counts as fetched (KV "
    "read) and not as budget: Oracle top-k scores every key. It is the ceiling of the attention that so many keys "
    "hold, not of quality: a method that also keeps sinks and a window, or adds a mean for the rest, can lose less."
)
# What methods save -> (the stored study, what it is called where it is missing).
OF = {
    "memory": ("eviction", "Every rule of eviction, by the share of the keys that it removes"),
    "prefill": ("prefill", "Prompts read by blocks, by length"),
}
DUO = "duo_attention"
KEEPS = {True: "every key", False: "sinks and a window"}
HEADS = {
    "layer": tables.Column("layer", "whole"),
    "head": tables.Column("key-value head", "whole"),
    "rise": tables.Column("loss without it", "number", 4, help="estimated rise on this text, in nats per token"),
    "far": tables.Column("reads far", "share", help="attention to neither the first token nor the last 128"),
    "keeps": tables.Column("keeps", help="by how far it reads, as DuoAttention chooses"),
    "by_loss": tables.Column("would keep by loss", help="if as many heads were chosen by the loss without them"),
}


def show() -> None:
    """The study of the methods that are shown above."""
    saves = st.session_state["quality_saves"]
    if saves == "reads":
        equal_reads()
        st.header("Quality against time", anchor=False, help=cached.glossary("crossover"))
        if (measured := studied.opened(TIMED, "Quality against time, of every method with a kernel")) is not None:
            studied.drawn(measured, "quality_timed", name=TIMED)
        return
    name, title = OF[saves]
    numbers = studied.opened(name, title)
    if numbers is not None:
        studied.drawn(numbers, f"quality_{name}", name=name)


def equal_reads() -> None:
    """What was found, the means of all methods, one text and context drawn large, all rows, and how it was made."""
    st.header("Equal reads", anchor=False, help=cached.glossary("equal reads"))
    numbers = studied.opened(EQUAL, "Every method at the same budgets")
    if numbers is None:
        return
    means = numbers.numbers["means"]
    shares = list(dict.fromkeys(row["share"] for row in means))
    by_method: dict[str, dict] = {}
    for row in means:
        by_method.setdefault(row["label"], {"method": row["label"]})[f"{row['share']:g}"] = row["difference"]
    columns = {"method": tables.Column("method")}
    columns |= {f"{share:g}": tables.Column(f"at {share:.0%} of the reads", "share") for share in shares}
    st.subheader("Change of perplexity, mean over all texts and contexts", anchor=False)
    plots.listed(columns, list(by_method.values()), "equal_means", "Mean change of perplexity at each budget")
    widgets.prose(WHY_LAST, "quiet")
    titles = [panel.title for panel in numbers.panels]
    widgets.settled("equal_panel", [None, *titles], None)
    default = st.session_state["equal_panel"] or titles[0]
    chosen = fields.pick(st.selectbox, "Text and context", titles, "equal_panel", default, width=480)
    studied.one(numbers, chosen, "equal", cached.glossary("equal reads"))
    widgets.prose(numbers.notes, "quiet")
    studied.rows(EQUAL, numbers, "equal")
    studied.made(numbers)


def split(choice: Asked) -> None:
    """The list of DuoAttention's heads, those that the text would miss most first."""
    request = HeadSplit(**state.study_args(st.session_state, ratio=choice.settings["ratio"]))
    run = asking.ask(request, "Estimating the loss without each head", asking.inspected()["tokens"])
    widgets.prose(run.numbers["sentence"])
    heads = cached.columns(run, "heads")
    values = {name: heads[name] for name in ("layer", "head", "rise", "far")}
    values |= {"keeps": [KEEPS[keeps_all] for keeps_all in heads["whole"]]}
    values |= {"by_loss": [KEEPS[missed] for missed in heads["missed"]]}
    st.subheader("Heads that this text would miss most", anchor=False, help=cached.glossary("ablation of a head"))
    plots.listed(HEADS, values, "quality_split_rows", "Key-value heads", run.id, height=360)
    widgets.notes(run)
    widgets.source(run)
