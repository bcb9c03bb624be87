"""Changing budgets by hand: how many tokens in all, heads set, scaled or pinned, undone."""

from collections.abc import Sequence

import streamlit as st

from analysis.runs import Run
from app import cached
from app.budgets import edits as by_word, live, policy
from app.selection import state
from app.selection.sparsify import BUDGET_WAYS, EDIT_HOW, EDIT_WHERE
from app.ui import asking, fields, widgets


def show(run: Run, cells: Sequence[int]) -> None:
    """The form; the heads are chosen on the map."""
    chosen, numbers = st.session_state, run.numbers
    heads, layers = len(numbers["budgets"][0]), asking.layers(chosen["model"])
    # Another way to say it begins with what is on view.
    begins = {
        "beta": numbers["beta"],
        "keys_per_head": numbers["total"] / sum(map(len, numbers["ranks"])),
        "reads": 100 * numbers["reads_causal"],
    }
    chosen["budget_way_pick"] = chosen["budget_way"]
    _, label, low, high, step = BUDGET_WAYS[chosen["budget_way"]]
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.selectbox(
            "Tokens in all",
            list(BUDGET_WAYS),
            format_func=lambda way: BUDGET_WAYS[way][0],
            key="budget_way_pick",
            width=250,
            on_change=_way,
            args=(begins,),
            help=cached.glossary("key budget"),
        )
        if label:
            value = chosen["budget_size"]
            widgets.settled("budget_size", [value] if low <= value <= high else [], max(low, 1.0))
            st.number_input(label, low, high, key="budget_size", step=step, format="%g", width=140)
        look = {"max_value": live.NO_CAP, "width": 130}
        fields.pick(st.number_input, "Cap, tokens", 1, "budget_cap", numbers["cap"], **look)
    on_map = by_word.words({"cells": list(cells), "pin": True}, heads, layers).removesuffix(" pinned")
    st.caption(f"Chosen on the map: {on_map}. Shift adds a head.")
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        _change(cells, heads)
    widgets.trouble("budget_trouble")
    changes = policy.edits()
    if changes:
        sentence = "; ".join(by_word.words(edit, heads, layers) for edit in changes)
        widgets.prose(f"Your changes, in this order: {sentence}.", "quiet")


def _change(cells: Sequence[int], heads: int) -> None:
    chosen, changes = st.session_state, policy.edits()
    widgets.settled("budget_factor", [min(chosen["budget_factor"], 100.0)], 0.5)
    widgets.settled("budget_keys", [min(max(chosen["budget_keys"], 1), 1 << 20)], 64)
    where = st.selectbox("Change", list(EDIT_WHERE), format_func=EDIT_WHERE.__getitem__, key="budget_where", width=210)
    how = st.segmented_control("How", list(EDIT_HOW), format_func=EDIT_HOW.__getitem__, key="budget_how", required=True)
    value: float | bool = True
    if how == "scale":
        value = round(st.number_input("Times", 0.0, 100.0, step=0.25, key="budget_factor", width=110), 4)
    elif how == "set":
        value = st.number_input("Tokens", 1, 1 << 20, step=1, key="budget_keys", width=110)
    # Of several heads, their row or column is that of the last one.
    layer, head = divmod(cells[-1], heads)
    places: dict[str, dict] = {"cells": {"cells": list(cells)}, "layer": {"layer": layer}, "head": {"head": head}}
    added = places.get(where, {}) | {how: value}
    st.button("Apply", key="budget_apply", type="primary", on_click=policy.change, args=(added,))
    st.button(
        "Undo",
        key="budget_undo",
        icon=":material/undo:",
        disabled=not changes,
        on_click=policy.change,
        args=(None,),
    )
    st.toggle("Keep the total", key="budget_keep", help="The other heads share what is left, by their ranks.")


def _way(begins: dict[str, float]) -> None:
    way = st.session_state["budget_way_pick"]
    state.choose(st.session_state, budget_way=way, budget_size=float(f"{begins.get(way, 1.0):.3g}"))
