"""Heads like this one: those whose attention on this text is most like its own."""

import streamlit as st

from app import cached
from app.heads import finder, scope
from app.selection import state
from app.ui import asking, painted, tables, widgets

TERM = "likeness of heads"


def show(table: dict, tokens: dict, layer: int, head: int, names: finder.Names) -> None:
    """The heads most like the chosen one in the window in use, or in all; a row chooses its head. `table`: the
    statistics of all heads, which label them; `names`: those that are known."""
    settings = {"layer": layer, "head": head, "without_first": st.session_state["without_first"]}
    args = state.study_args(st.session_state, **settings)
    part, size = scope.choice("alike_all", "alike", args, tokens)
    doing = f"Comparing head {head} of layer {layer} with the others"
    run = asking.ask("alike", args | {"part": part}, doing, size)
    widgets.prose(run.numbers["sentence"])
    heads = cached.columns(run, "heads")
    cells = list(zip(heads["layer"], heads["head"], strict=True))
    labels = dict(zip(zip(table["layer"], table["head"], strict=True), table["label"], strict=True))
    values = heads | {
        "label": [labels[cell] for cell in cells],
        "name": [", ".join(names.get(cell, ())) for cell in cells],
        "spelled": [_spelled(*row) for row in zip(heads["likeness"], heads["low"], heads["high"], strict=True)],
    }
    columns = {
        "layer": tables.Column("layer", "whole"),
        "head": tables.Column("head", "whole"),
        "likeness": tables.Column("likeness", "share", words="spelled", help=cached.glossary(TERM)),
        "label": tables.Column("label", help=cached.glossary("label of a head")),
        **({"name": tables.Column("name", help=cached.glossary("name of a head"))} if names else {}),
    }
    tables.table(
        columns,
        values,
        key="heads_alike",
        identity=run.id,
        label="Heads like this one; choose one to look at it",
        on_row=lambda: finder.choose(*(painted.picked("heads_alike", cells) or (layer, head))),
        height=330,
    )
    widgets.numbers({name: values[name] for name in columns}, "heads-like-this-one", "heads_alike_numbers")
    widgets.notes(run)


def _spelled(value: float, low: float | None, high: float | None) -> str:
    return f"{value:.0%}" if low is None else f"{value:.0%} ({low:.0%} to {high:.0%})"
