"""The map of budgets that follows its sliders in the browser, and what its clicks and released sliders choose."""

from collections.abc import Sequence
from itertools import product

import streamlit as st

from analysis.runs import Run
from app import cached
from app.budgets import policy
from app.budgets.budget_words import share
from app.selection import state
from app.selection.sparsify import READ_SHARES
from app.ui import asking, export, fields
from app.ui.painted import part

KEY = "budget_map"
# A cap that no head reaches.
NO_CAP = 1 << 20
# Keys that every head gets before the rest is shared out: `analysis.metrics.budgets.FLOOR`.
FLOOR = 2
_BUDGETS = part(
    "budgets",
    """<section class="budgets"><dl class="facts">
      <div><dt>Pairs read</dt><dd class="pairs"></dd></div>
      <div><dt>Tokens a head, mean</dt><dd class="each"></dd></div>
      <div><dt>Loss</dt><dd><span class="lost"></span> <small class="worst"></small></dd></div></dl>
    <svg class="map" role="application" tabindex="0"></svg>
    <p class="note">Number: tokens a head may read. Bar: part of what it needs.</p>
    <svg class="loss" role="img" aria-label="Change of perplexity by the share that is read"></svg>
    <div class="dials">
      <label for="keep">Read</label><input id="keep" class="keep" type="range"><output class="keep-now"></output>
      <label for="cap">Cap</label><input id="cap" class="cap" type="range"><output class="cap-now"></output></div>
    <p class="trouble" hidden>The heads changed by hand take more than this: undo a change, or read more.</p>
    </section>""",
    *("numbers", "picture"),
)


def show(run: Run, about: dict, curve: Run | None, found: dict | None, cells: Sequence[int]) -> None:
    """The map, the measured loss under it, and both sliders. `run`: the policy in use, stored as `about`; `curve`: its
    loss by share, on the text in use or as an example on another one; `found`: the loss of exactly this policy."""
    chosen, numbers, table = st.session_state, run.numbers, cached.columns(run, "cells")
    now = _change(found) | {"exact": True} if found else None
    rows = reversed(curve.numbers["rows"]) if curve else []
    text = curve.request["text"] if curve else chosen["text"]
    layers, others = asking.layers(chosen["model"]), asking.other_layers(chosen["model"])
    data = {
        "id": f"{run.id}{run.created}{curve.id if curve else ''}{now}{cells}",
        "heads": max(table["head"]) + 1,
        "kv_heads": asking.card(chosen["model"])["kv_heads"],
        "layers": layers,
        "rows": [[layer, others.get(layer)] for layer in sorted({*layers, *others}, reverse=True)],
        "ranks": table["rank"],
        "budgets": table["budget"],
        "fixed": table["fixed"],
        "cells": list(cells),
        "floor": FLOOR,
        "length": numbers["window"],
        "edits": policy.edits(),
        "keep_total": chosen["budget_keep"],
        "share": chosen["budget_size"] / 100 if chosen["budget_way"] == "reads" else None,
        "reads": numbers["reads_causal"],
        "stored": table["stored"],
        "stored_cap": about.get("policy", [numbers["cap"]])[-1],
        "cap": numbers["cap"],
        "cap_chosen": (chosen["budget_cap"] or NO_CAP) < NO_CAP,
        "measured": [{"share": row["share"]} | _change(row) for row in rows],
        "now": now,
        "example": f"“{cached.texts()[text]}”" if text != chosen["text"] else "",
    }
    title = f"Tokens that each head may read, {share(numbers['reads_causal'])} of the pairs"
    export.corner(lambda: table, "budgets", "budget_map_numbers", title, chart=KEY)
    _BUDGETS(key=KEY, data=data, on_share_change=_share, on_cap_change=_cap, on_cells_change=_cells)


def _change(row: dict) -> dict:
    return {name: row[name] for name in ("difference", "low", "high")} | {"worst": row["worst_bin_difference"]}


def _released(name: str) -> float | str | None:
    return st.session_state.get(KEY, {}).get(name)


def _share() -> None:
    """The share of the pairs at which the slider was let go; without a cap, as the curve was measured."""
    value = _released("share")
    if isinstance(value, float | int) and 0 < value <= 1:
        read_share(value)


def read_share(value: float) -> None:
    """Read this share of the pairs."""
    chosen = st.session_state
    at = {"budget_reads": nearest(value), "budget_token": None, "budget_cap": chosen["budget_cap"] or NO_CAP}
    state.choose(chosen, budget_way="reads", budget_size=round(100 * value, 1), **at)


def _cap() -> None:
    value = _released("cap")
    if isinstance(value, int) and value >= 0:
        state.choose(st.session_state, budget_cap=value or NO_CAP)


def _cells() -> None:
    """The chosen heads; the last one is the head that other pages look at."""
    word = _released("cells")
    if isinstance(word, str) and word:
        cells, heads = [int(cell) for cell in word.split(".")], asking.card(st.session_state["model"])["heads"]
        place, head = divmod(cells[-1], heads)
        layer = asking.layers(st.session_state["model"])[place]
        state.choose(st.session_state, layer=layer, head=head, budget_cells=word if len(cells) > 1 else None)


def chosen_cells(count: int, heads: int) -> list[int]:
    """The chosen heads, place of the layer * heads + head: those of the link, else the shared layer and head, else the
    first."""
    raw = st.session_state["budget_cells"]
    cells = [int(cell) for cell in raw.split(".")] if raw else []
    if not cells or max(cells) >= count:
        layers = asking.layers(st.session_state["model"])
        layer, head = fields.cell(list(product(layers, range(heads))))
        cells = [layers.index(layer) * heads + head]
    return cells


def stop(run: Run) -> float:
    """The measured share that is nearest to what the policy in use reads."""
    chosen = st.session_state
    return chosen["budget_reads"] if chosen["budget_way"] == "reads" else nearest(run.numbers["reads_causal"])


def nearest(value: float) -> float:
    """The measured share that is nearest to this one."""
    return min(READ_SHARES, key=lambda one: abs(one - value))
