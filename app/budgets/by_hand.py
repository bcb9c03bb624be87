"""The rank map beside the budget map, and changing budgets by hand: what they read and what they do to quality."""

from collections.abc import Sequence

import streamlit as st

from analysis.runs import Run
from app import cached
from app.budgets import edits as budgets_edits, maps, policy as budgets
from app.budgets.words import positions, share, shared, span
from app.selection import state
from app.selection.sparsify import BUDGET_WAYS, EDIT_HOW, EDIT_WHERE
from app.ui import asking, fields, jobs, tables, widgets

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
    ends = [value for name in ("rank", "budget") for value in table[name]]
    both = (max(1, min(ends)), max(ends))
    with st.grid(2, min_column_width=360, gap="medium"):
        widgets.chart(
            maps.heads(table, "rank", both, cells),
            {name: table[name] for name in ("layer", "head", "rank")},
            title="Needed: the rank of every head",
            key="budget_ranks",
            alt="Top-p rank of every layer and head, in keys",
            help=cached.glossary("top-p rank"),
        )
        with st.container():
            points = widgets.chart(
                maps.heads(table, "budget", both, cells, table["fixed"]),
                table,
                title="Given: the budget of every head",
                key="budget_map",
                alt="Budget of every layer and head, in keys; those set by hand underlined",
                help=cached.glossary("key budget"),
                select="points",
            )
            _take(points, heads)
    st.caption(
        "Both maps belong to the texts that calibrated the policy and stay when another text is chosen. The effect "
        "below and the tab “Where it breaks” are of the text in use."
    )
    capped = sum(budget > run.numbers["cap"] for budget in table["budget"])
    if capped:
        st.caption(f"The cap holds {capped:,} of {len(table['budget']):,} heads to {run.numbers['cap']:,} keys.")
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
    cells = [point["customdata"][0] * heads + point["customdata"][1] for point in points if point.get("customdata")]
    if cells == st.session_state.get("budget_map_taken", []):
        return
    st.session_state["budget_map_taken"] = cells
    if cells:
        _choose([int(cell) for cell in cells], heads)
        st.rerun()


def _total(numbers: dict) -> None:
    total, stored = numbers["total"], numbers["stored_total"]
    moved = "as calibrated" if total == stored else f"{total - stored:+,} by your changes".replace("-", "−")
    facts = (
        ("Keys in total", f"{total:,}", moved, cached.glossary("key budget")),
        ("Reads", share(numbers["reads_causal"]), "of the causal pairs", cached.glossary("KV reads (% of causal)")),
        ("Reads", shared(numbers), "per key-value head", cached.glossary("reads per key-value head")),
        ("Reads", share(numbers["reads_full"]), "of all pairs, T × T", cached.glossary("two denominators of reads")),
        ("Cap", f"{numbers['cap']:,}", "keys of a head at most", cached.glossary("cap")),
    )
    with st.container(horizontal=True, gap="large"):
        widgets.metrics(facts)


def _change(run: Run, cells: Sequence[int], heads: int) -> None:
    st.subheader("Change it by hand", anchor=False, help=cached.glossary("key budget"))
    layers = len(run.numbers["budgets"])
    _how_many(run)
    now = budgets_edits.words({"cells": list(cells), "pin": True}, heads).removesuffix(" pinned")
    st.caption(f"Chosen: {now} (layer.head). Click a head in the right map to choose it; Shift-click adds one.")
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        for name, count, index in (("layer", layers, cells[-1] // heads), ("head", heads, cells[-1] % heads)):
            st.session_state[f"budget_{name}_pick"] = index
            st.selectbox(
                name.capitalize(), range(count), key=f"budget_{name}_pick", width=80, on_change=_picked, args=(heads,)
            )
        widgets.settled("budget_factor", [min(st.session_state["budget_factor"], 100.0)], 0.5)
        widgets.settled("budget_keys", [min(max(st.session_state["budget_keys"], 1), 1 << 20)], 64)
        where = st.selectbox("Change", list(EDIT_WHERE), format_func=EDIT_WHERE.get, key="budget_where", width=230)
        how = st.segmented_control("How", list(EDIT_HOW), format_func=EDIT_HOW.get, key="budget_how", required=True)
        if how == "scale":
            value = st.number_input("Times", 0.0, 100.0, step=0.25, key="budget_factor", width=110)
        elif how == "set":
            value = st.number_input("Keys", 1, 1 << 20, step=1, key="budget_keys", width=110)
        else:
            value = True
        changed_cells = _edit(where, cells, heads) | {how: round(value, 4) if how == "scale" else value}
        st.button("Apply", key="budget_apply", type="primary", on_click=budgets.change, args=(changed_cells,))
        changes = budgets.edits()
        st.button(
            "Undo",
            key="budget_undo",
            icon=":material/undo:",
            disabled=not changes,
            on_click=budgets.change,
            args=(None,),
        )
        if budgets.by_hand():
            st.button("Start over", key="budget_over", type="tertiary", on_click=budgets.start_over)
        st.toggle(
            "Keep the total",
            key="budget_keep",
            help="The other heads share what is left, in proportion to their ranks.",
        )
    widgets.trouble("budget_trouble")
    if changes:
        sentence = "; ".join(budgets_edits.words(edit, heads) for edit in changes)
        widgets.prose(f"Your changes, in this order: {sentence}.", "quiet")


def _how_many(run: Run) -> None:
    chosen = st.session_state
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        chosen["budget_way_pick"] = chosen["budget_way"]
        st.selectbox(
            "Keys in total",
            list(BUDGET_WAYS),
            format_func=lambda way: BUDGET_WAYS[way][0],
            key="budget_way_pick",
            width=250,
            on_change=_way,
            args=(run.numbers["beta"], run.numbers["total"], run.numbers["reads_causal"], len(run.numbers["ranks"])),
            help=cached.glossary("key budget"),
        )
        _, label, low, high, step = BUDGET_WAYS[chosen["budget_way"]]
        if label:
            value = chosen["budget_size"]
            widgets.settled("budget_size", [value] if low <= value <= high else [], max(low, 1.0))
            st.number_input(label, low, high, key="budget_size", step=step, format="%g", width=140)
        chosen["budget_cap_pick"] = run.numbers["cap"]
        look = {"on_change": fields.keep_pick, "args": ("budget_cap",), "help": cached.glossary("cap")}
        st.number_input("Cap, keys", 1, 1 << 20, key="budget_cap_pick", width=130, **look)


def _way(beta: float, total: int, reads: float, layers: int) -> None:
    """Another way to say it begins with what is on view."""
    way = st.session_state["budget_way_pick"]
    heads = layers * asking.card(st.session_state["model"])["heads"]
    start = {"beta": beta, "keys_per_head": total / heads, "reads": 100 * reads}.get(way, 1.0)
    state.choose(st.session_state, budget_way=way, budget_size=float(f"{start:.3g}"))


def _picked(heads: int) -> None:
    cell = st.session_state["budget_layer_pick"] * heads + st.session_state["budget_head_pick"]
    _choose([cell], heads)


def _edit(where: str, cells: Sequence[int], heads: int) -> dict:
    """What a change is made to; of several cells, their row or column is that of the last one."""
    layer, head = divmod(cells[-1], heads)
    return {"cells": {"cells": list(cells)}, "layer": {"layer": layer}, "head": {"head": head}, "all": {}}[where]


def _effect(run: Run, stored: dict[str, dict]) -> None:
    st.subheader("What it does to quality", anchor=False, help=cached.glossary("paired difference"))
    if budgets.refused(stored):
        return
    policy, name = budgets.recipe(), st.session_state["budget_policy"]
    policies = {"as calibrated": {"name": name}} | ({"with your changes": policy} if policy != {"name": name} else {})
    values, size = {column: [] for column in COLUMNS}, None
    for label, recipe in policies.items():
        cap = stored.get(name, {}).get("policy", [run.numbers["cap"]])[-1] if recipe == {"name": name} else None
        args = sweep_arguments(recipe, [cap or run.numbers["cap"]])
        sweep = cached.store().find("cap-sweep", args)
        if sweep is None:
            jobs.run_button(f"Measure {label}", "cap-sweep", args, f"budget_measure_{len(recipe)}", size)
            continue
        row = sweep.numbers["sweep"][0]
        worst = (
            f"{span({name: row[f'worst_bin_{name}'] for name in ('difference', 'low', 'high')})} at {positions(row)}"
        )
        for column, cell in zip(COLUMNS, (label, row["reads_causal"], shared(row), span(row), worst), strict=True):
            values[column].append(cell)
    if values["what"]:
        key = f"{len(values['what'])}.{st.session_state['budget_edits']}"
        tables.table(COLUMNS, values, key="budget_effect", identity=key, label="Effect on quality", height=140)
        widgets.numbers(values, "effect", "budget_effect_rows")


def sweep_arguments(policy: dict, caps: list[int]) -> dict:
    """The arguments of `cap-sweep` on the text in use."""
    chosen = st.session_state
    return {"model": chosen["model"], "texts": [chosen["text"]], "policy": policy, "caps": caps, **SWEEP}
