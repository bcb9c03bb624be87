"""The card of a head wherever its name stands: its names with their proof, own words and others', what it reads."""

from collections.abc import Mapping, Sequence

import streamlit as st

from analysis.commands.heads import Names as NamesOfHeads, Statistics
from analysis.runs.head_notes import Notes, notes_of, others_of
from app import cached
from app.selection import state
from app.ui import asking, painted, tables

# (layer, head) -> its names.
Names = Mapping[tuple[int, int], Sequence[str]]
# On every page: shows the card of a head over its name.
ON_HOVER = painted.part("names", '<div class="head-card" popover="manual" role="status"></div>')
MARKS = {"confirmed": " ✓", "not confirmed": " (not confirmed)"}


def names_request() -> NamesOfHeads:
    """What the heads of the model in use are called."""
    return cached.request(NamesOfHeads, model=st.session_state["model"])


def names() -> Names:
    """The names of every head, what ablation confirms first, where they were asked for before."""
    run = cached.store().find(names_request())
    labels: dict[tuple[int, int], list[str]] = {}
    for row in sorted(run.numbers["rows"] if run else [], key=lambda row: row["verdict"] != "confirmed"):
        labels.setdefault((row["layer"], row["head"]), []).append(row["name"] + MARKS.get(row["verdict"], ""))
    return labels


def model() -> tuple[str, str]:
    """The model in use and the revision of its weights."""
    return st.session_state["model"], asking.card(st.session_state["model"])["revision"]


def notes() -> Notes:
    """What the reader wrote about heads of the model in use."""
    return notes_of(cached.store().root, *model())


def cards() -> dict[str, str]:
    """What stands on hover over the name of a head, by layer.head: of those that anything is known of."""
    sentences: dict[str, list[str]] = {}
    for place, called in names().items():
        sentences.setdefault("{}.{}".format(*place), []).extend(called)
    # What all heads read in the text in use.
    request = Statistics(**state.study_args(st.session_state, without_first=st.session_state["without_first"]))
    if (run := cached.store().find(request)) is not None:
        table = cached.columns(run, "heads")
        rows = zip(*(table[name] for name in ("layer", "head", "label", "top_p_rank")), strict=True)
        for layer, head, label, keys in rows:
            # A label says the same as a name, with less behind it.
            named = f"{layer}.{head}" in sentences
            read = ["" if named else label, "" if keys is None else f"90% on {keys:,.0f} keys"]
            sentences.setdefault(f"{layer}.{head}", []).extend(filter(None, read))
    for cell, words in notes().items():
        sentences.setdefault(cell, []).extend(words.values())
    for whose, theirs in others_of(cached.store().root, *model()).items():
        for cell, words in theirs.items():
            sentences.setdefault(cell, []).append(f"{whose}: {', '.join(words.values())}")
    return {cell: " · ".join(words) for cell, words in sentences.items()}


# The column of a table that names heads.
HEAD = tables.Column("head", heads=True)
