"""Stored studies behind Quality vs speed: all methods at the same reads, with figure 1 of Focus drawn from it; dropped
keys and fewer bits at the same bytes, and what a serving stack can run of them; prompts read by blocks. And
DuoAttention's split of the heads, beside what this text loses without each."""

from dataclasses import replace

import streamlit as st

from analysis.claims import Comparison
from analysis.commands.quality import HeadSplit
from analysis.papers import stacks
from app import cached
from app.quality.asked import Asked
from app.selection import state
from app.ui import asking, fields, plots, studied, tables, widgets

EQUAL = "equal-budget"
WHY_LAST = (
    "The budget counts the keys in the softmax. What a method scores first, to choose them, counts as fetched (KV "
    "read) and not as budget: Oracle top-k scores every key. It is the ceiling of the attention that so many keys "
    "hold, not of quality: a method that also keeps sinks and a window, or adds a mean for the rest, can lose less."
)
BYTES = "equal-bytes"
# What methods save -> the stored studies, and what each is called.
OF = {
    "memory": {
        BYTES: "Dropped keys, fewer bits and both, at equal bytes",
        "long-decoding": "Eviction while a long answer is written",
        "transfer": "Calibrated on one kind of text, run on another",
    },
    "prefill": {"prefill": "Prompts read by blocks, by length"},
}
# What the axis of equal bytes counts -> the column of its panels that are not drawn then.
AXES = {"held": "read_share", "read": "level_share"}
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
        studied.section("figure-one", "Quality against time", "crossover")
        return
    for name, title in OF[saves].items():
        if len(OF[saves]) > 1:
            st.header(title, anchor=False)
        numbers = studied.opened(name, title, reads=name != "long-decoding")
        if numbers is None:
            continue
        shown = numbers
        if name == BYTES:
            # Over the bytes held or, where that is chosen, the bytes that a token reads.
            st.segmented_control("Bytes", list(AXES), key="bytes_axis", format_func="bytes {}".format, required=True)
            hidden = AXES[st.session_state["bytes_axis"]]
            shown = replace(numbers, panels=[panel for panel in numbers.panels or [] if panel.x != hidden])
        studied.drawn(shown, f"quality_{name}", name=name)
        if name == BYTES:
            ladder(numbers.numbers["ladder"])


def ladder(rungs: list[dict]) -> None:
    """What eviction loses where a serving stack chooses less freely, which stacks run that, and where they say so."""
    st.header("What a stack can run", anchor=False, help=cached.glossary("deployability ladder"))
    mean = [row for row in rungs if row["method"] == "mean"]
    by_rung: dict[str, dict] = {}
    for row in mean:
        cells = by_rung.setdefault(row["rung"], {"rung": row["rung"], "held": row["held"]})
        cells[row["setting"]] = Comparison.of(row, "against_measured").bracketed
        cells["runs"] = stacks.runs_on(row["rung"])
    columns = {"rung": tables.Column("what chooses"), "held": tables.Column("bytes of a token", "number", 0)}
    columns |= {setting: tables.Column(f"{setting}, nats") for setting in dict.fromkeys(row["setting"] for row in mean)}
    columns["runs"] = tables.Column("runs on")
    bits = {"rung": "every key, in fewer bits", "runs": stacks.runs_on("bits")}
    rows = [{name: row.get(name) for name in columns} for row in (*by_rung.values(), bits)]
    plots.listed(columns, rows, "quality_rungs", "Loss above the rules as measured, by what chooses")
    with st.expander("What their documentation says", icon=":material/menu_book:"):
        said = [vars(says) for says in stacks.documented()]
        plots.listed({name: tables.Column(name) for name in said[0]}, said, "quality_says", "Serving stacks' own words")


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
