"""The map of all heads by one of three tasks or another statistic, with who is first by each."""

import math
from collections.abc import Sequence

import streamlit as st

from app.heads.head_charts import is_log
from app.heads.head_statistics import ALL, OWN, TASKS, Statistic, cells_of, letters, ranked
from app.selection import state
from app.ui import asking, painted
from app.ui.head_cards import Names

_HEADS = painted.part(
    "heads",
    """<section class="heads"><div class="chips" role="group" aria-label="What the map shows"></div>
    <div class="map" role="grid" aria-label="Heads: arrows move, Enter chooses"></div>
    <div class="foot"><span class="said" role="status"></span>
    <span><span class="what"></span> <span class="low"></span><i class="scale"></i><span class="high"></span></span>
    </div></section>""",
)


def first(table: dict, name: str) -> tuple[int, int] | None:
    """The (layer, head) that is first by a statistic, None where no head has a value."""
    rows = ranked(table[name], ALL[name].first)
    return cells_of(table)[rows[0]] if rows else None


def strengths(values: Sequence[float | None], about: Statistic) -> list[float | None]:
    """How strongly each value is painted, 0 to 1: the end that is looked at first is strong."""
    scale = math.log if is_log(values) else float
    scaled = [None if value is None else scale(value) for value in values]
    numbers = [value for value in scaled if value is not None] or [0.0]
    low, span = min(numbers), (max(numbers) - min(numbers)) or 1.0
    shares = [None if value is None else (value - low) / span for value in scaled]
    return shares if about.first == "highest" else [None if share is None else 1 - share for share in shares]


def show(table: dict, chosen: tuple[int, int], names: Names, cards: dict, pinned: str | None, key: str) -> None:
    """The map; a chip or a cell chooses. `names`: those known of heads; `cards`: of `head_cards`."""
    now = st.session_state["statistic"]
    # While the first layers are read, what the model itself does may not be known yet.
    now = now if now in table else next(iter(TASKS))
    offered = dict.fromkeys([*TASKS, *(name for name in OWN if name in table), now])
    measures = [_measure(table, name) for name in offered]
    cells = {cell: f"{cell[0]}.{cell[1]}" for cell in cells_of(table)}
    data = {"measures": measures, "measure": now, "chosen": list(chosen), "pinned": pinned, "about": cards}
    others = asking.other_layers(st.session_state["model"])
    rows = sorted({*table["layer"], *others}, reverse=True)
    data |= {"rows": [[layer, others.get(layer)] for layer in rows], "heads": max(table["head"]) + 1}
    data["letters"] = {spelled: letters(names.get(cell, ())) for cell, spelled in cells.items()}
    _HEADS(key=key, data=data, on_head_change=lambda: _chosen(key), on_measure_change=lambda: _measured(key))


def _measure(table: dict, name: str) -> dict:
    about, values = ALL[name], table[name]
    ends = sorted((value for value in values if value is not None), reverse=about.first == "lowest") or [None]
    low, high = ends[0], ends[-1]
    best = first(table, name)
    painted_cells = zip(cells_of(table), strengths(values, about), values, strict=True)
    return {
        "name": name,
        "chip": TASKS.get(name, about.short),
        "best": "none" if best is None else "{}.{}".format(*best),
        "title": about.short,
        "low": about.show(low),
        "high": about.show(high),
        "cells": {f"{layer}.{head}": [strong, about.show(value)] for (layer, head), strong, value in painted_cells},
    }


def choose(layer: int | None, head: int | None) -> None:
    """Look at another head; an exact tile belongs to the old one's pattern and is closed."""
    state.choose(st.session_state, layer=layer, head=head, tile=None)


def _chosen(key: str) -> None:
    if cell := st.session_state[key].get("head"):
        choose(*map(int, cell.split(".")))


def _measured(key: str) -> None:
    """Another task opens its first head."""
    name = st.session_state[key].get("measure")
    if name in ALL:
        state.choose(st.session_state, statistic=name, order=None)
        choose(None, None)
