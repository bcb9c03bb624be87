"""The rank map beside the budget map, and changing budgets by hand: what they read and what they do to quality."""

from collections.abc import Sequence

import streamlit as st

from analysis.commands.budgets import CapSweep
from analysis.runs import Run
from app import cached
from app.budgets import budget_charts, edits as by_word, policy as budgets
from app.budgets.budget_words import positions, share, shared, span
from app.selection import state
from app.selection.sparsify import BUDGET_WAYS, EDIT_HOW, EDIT_WHERE
from app.ui import fields, jobs, plots, tables, widgets

SWEEP = {"tolerance": 0.01, "tolerance_bin": 0.02, "window": None, "tokens": 16_384, "seed": 0}
COLUMNS = {
    "what": tables.Column("budgets"),
    "reads": tables.Column("reads", "share", help="of the causal pairs"),
    "shared": tables.Column("per key-value head", help=cached.glossary("reads per key-value head")),
    "change": tables.Column("change of perplexity (95% interval)"),
    "worst": tables.Column("worst stretch of positions"),
}


def tab(run: Run, stored: dict[str, dict]) -> None:
    """Both maps, the changes, and their effect."""
    table = cached.columns(run, "cells")
    heads = max(table["head"]) + 1
    cells = _chosen(len(table["head"]), heads)
    keys = [*table["rank"], *table["budget"]]
    ends = (max(1, min(keys)), max(keys))
    with st.grid(2, min_column_width=360, gap="medium"):
        ranks = budget_charts.keys_map(table, "rank", ends, cells)
        numbers = plots.columns(table, "layer", "head", "rank")
        plots.draw(ranks, numbers, "Needed: the rank of every head", "budget_ranks", "top-p rank")
        with st.container():
            given = budget_charts.keys_map(table, "budget", ends, cells, table["fixed"])
            points = plots.draw(
                given, table, "Given: the budget of every head", "budget_map", "key budget", select="points"
            )
            _take(points, heads)
    st.caption("Both maps belong to the texts that calibrated the policy; the effect below is of the text in use.")
    _total(run.numbers)
    _change(run, cells, heads)
    with widgets.guarded():
        _effect(run, stored)


def _chosen(count: int, heads: int) -> list[int]:
    """The chosen cells: those of the link, else the shared layer and head, else the first."""
    raw = st.session_state["budget_cells"]
    cells = [int(cell) for cell in raw.split(".")] if raw else []
    if not cells or max(cells) >= count:
        widgets.settled("layer", [None, *range(count // heads)], None)
        widgets.settled("head", [None, *range(heads)], None)
        cells = [(st.session_state["layer"] or 0) * heads + (st.session_state["head"] or 0)]
    return cells


def _choose(cells: Sequence[int], heads: int) -> None:
    """Choose cells; the last one is the head that other pages look at."""
    layer, head = divmod(cells[-1], heads)
    several = ".".join(map(str, sorted(set(cells)))) if len(set(cells)) > 1 else None
    state.choose(st.session_state, layer=layer, head=head, budget_cells=several)


def _take(points: list[dict], heads: int) -> None:
    """Choose the cells of a new selection; the chart keeps its selection, so an old one is passed over."""
    places = [point["customdata"] for point in points if point.get("customdata")]
    cells = [int(layer * heads + head) for layer, head in places]
    if cells == st.session_state.get("budget_map_taken", []):
        return
    st.session_state["budget_map_taken"] = cells
    if cells:
        _choose(cells, heads)
        st.rerun()


def _total(numbers: dict) -> None:
    moved = numbers["total"] - numbers["stored_total"]
    by_changes = f"{moved:+,} by your changes".replace("-", "−") if moved else "as calibrated"
    reads = cached.glossary("KV reads (% of causal)")
    facts = (
        ("Keys in total", f"{numbers['total']:,}", by_changes, cached.glossary("key budget")),
        ("Reads", share(numbers["reads_causal"]), "of the causal pairs", reads),
        ("Reads", shared(numbers), "per key-value head", cached.glossary("reads per key-value head")),
        ("Reads", share(numbers["reads_full"]), "of all pairs, T × T", cached.glossary("two denominators of reads")),
        ("Cap", f"{numbers['cap']:,}", "keys of a head at most", cached.glossary("cap")),
    )
    with st.container(horizontal=True, gap="large"):
        widgets.metrics(facts)


# --- changes by hand --------------------------------------------------------------------------------------------------


def _change(run: Run, cells: Sequence[int], heads: int) -> None:
    st.subheader("Change it by hand", anchor=False, help=cached.glossary("key budget"))
    _how_many(run)
    now = by_word.words({"cells": list(cells), "pin": True}, heads).removesuffix(" pinned")
    st.caption(f"Chosen: {now} (layer.head). Click a head in the right map to choose it; Shift-click adds one.")
    changes, layer, head = budgets.edits(), *divmod(cells[-1], heads)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        for name, count, place in (("layer", len(run.numbers["budgets"]), layer), ("head", heads, head)):
            st.session_state[f"budget_{name}_pick"] = place
            look = {"key": f"budget_{name}_pick", "width": 80, "on_change": _picked, "args": (heads,)}
            st.selectbox(name.capitalize(), range(count), **look)
        widgets.settled("budget_factor", [min(st.session_state["budget_factor"], 100.0)], 0.5)
        widgets.settled("budget_keys", [min(max(st.session_state["budget_keys"], 1), 1 << 20)], 64)
        where = st.selectbox("Change", list(EDIT_WHERE), format_func=EDIT_WHERE.get, key="budget_where", width=230)
        how = st.segmented_control("How", list(EDIT_HOW), format_func=EDIT_HOW.get, key="budget_how", required=True)
        value: float | bool = True
        if how == "scale":
            value = round(st.number_input("Times", 0.0, 100.0, step=0.25, key="budget_factor", width=110), 4)
        elif how == "set":
            value = st.number_input("Keys", 1, 1 << 20, step=1, key="budget_keys", width=110)
        # Of several cells, their row or column is that of the last one.
        places = {"cells": {"cells": list(cells)}, "layer": {"layer": layer}, "head": {"head": head}, "all": {}}
        added = places[where] | {how: value}
        st.button("Apply", key="budget_apply", type="primary", on_click=budgets.change, args=(added,))
        look = {"icon": ":material/undo:", "disabled": not changes, "on_click": budgets.change, "args": (None,)}
        st.button("Undo", key="budget_undo", **look)
        if budgets.by_hand():
            st.button("Start over", key="budget_over", type="tertiary", on_click=budgets.start_over)
        help = "The other heads share what is left, in proportion to their ranks."
        st.toggle("Keep the total", key="budget_keep", help=help)
    widgets.trouble("budget_trouble")
    if changes:
        sentence = "; ".join(by_word.words(edit, heads) for edit in changes)
        widgets.prose(f"Your changes, in this order: {sentence}.", "quiet")


def _how_many(run: Run) -> None:
    chosen, numbers = st.session_state, run.numbers
    heads = sum(map(len, numbers["ranks"]))
    # Another way to say it begins with what is on view.
    begins = {
        "beta": numbers["beta"],
        "keys_per_head": numbers["total"] / heads,
        "reads": 100 * numbers["reads_causal"],
    }
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        chosen["budget_way_pick"] = chosen["budget_way"]
        st.selectbox(
            "Keys in total",
            list(BUDGET_WAYS),
            format_func=lambda way: BUDGET_WAYS[way][0],
            key="budget_way_pick",
            width=250,
            on_change=_way,
            args=(begins,),
            help=cached.glossary("key budget"),
        )
        _, label, low, high, step = BUDGET_WAYS[chosen["budget_way"]]
        if label:
            value = chosen["budget_size"]
            widgets.settled("budget_size", [value] if low <= value <= high else [], max(low, 1.0))
            st.number_input(label, low, high, key="budget_size", step=step, format="%g", width=140)
        chosen["budget_cap_pick"] = numbers["cap"]
        look = {"on_change": fields.keep_pick, "args": ("budget_cap",), "help": cached.glossary("cap")}
        st.number_input("Cap, keys", 1, 1 << 20, key="budget_cap_pick", width=130, **look)


def _way(begins: dict[str, float]) -> None:
    way = st.session_state["budget_way_pick"]
    state.choose(st.session_state, budget_way=way, budget_size=float(f"{begins.get(way, 1.0):.3g}"))


def _picked(heads: int) -> None:
    cell = st.session_state["budget_layer_pick"] * heads + st.session_state["budget_head_pick"]
    _choose([cell], heads)


def _effect(run: Run, stored: dict[str, dict]) -> None:
    st.subheader("What it does to quality", anchor=False, help=cached.glossary("paired difference"))
    if budgets.refused(stored):
        return
    policy, name = budgets.recipe(), st.session_state["budget_policy"]
    usual = {"name": name}
    recipes = {"as calibrated": usual} | ({"with your changes": policy} if policy != usual else {})
    rows = []
    for label, recipe in recipes.items():
        cap = run.numbers["cap"] if recipe != usual else stored.get(name, {}).get("policy", [run.numbers["cap"]])[-1]
        request = cap_sweep(recipe, [cap])
        sweep = cached.store().find(request)
        if sweep is None:
            jobs.run_button(f"Measure {label}", request, f"budget_measure_{len(recipe)}")
            continue
        row = sweep.numbers["sweep"][0]
        worst = span({end: row[f"worst_bin_{end}"] for end in ("difference", "low", "high")})
        cells = {"what": label, "reads": row["reads_causal"], "shared": shared(row), "change": span(row)}
        rows.append(cells | {"worst": f"{worst} at {positions(row)}"})
    if rows:
        identity = f"{len(rows)}.{st.session_state['budget_edits']}"
        plots.listed(COLUMNS, rows, "budget_effect", "Effect on quality", identity, height=140)


def cap_sweep(policy: dict, caps: list[int]) -> CapSweep:
    """A policy under caps, on the text in use."""
    chosen = st.session_state
    return CapSweep(model=chosen["model"], texts=[chosen["text"]], policy=policy, caps=caps, **SWEEP)
