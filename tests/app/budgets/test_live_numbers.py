"""The numbers of budgets.js and routing.js, which live pictures draw, against Python's on the same ranks and curves."""

import numpy as np
import pytest

from analysis.errors import BadSetting
from analysis.metrics.budgets import FLOOR, allocate_budget, budget_for_reads, edited, reads
from analysis.studies.routing.rows import at_budget
from app.ui.painted import PARTS
from tests.made.in_node import NEEDS_NODE, by_node

pytestmark = NEEDS_NODE
BUDGETS = """({ share, cap, ...data }) => {
  const parts = weights(data.ranks), total = forReads(parts, share, data.length, data.floor)
  const start = allocate(parts, total, data.floor), budgets = edited(start, parts, data)
  return { total, start, budgets, ...(budgets ? reads(budgets, cap, data) : {}) }
}"""
EDITS = (
    [],
    [{"layer": 0, "scale": 0.5}, {"head": 1, "set": 9}, {"cells": [2, 3], "pin": True}],
    [{"set": 5}],
    [{"layer": 1, "head": 0, "scale": 0}],
    [{"cells": [0], "set": 1 << 20}],
)


def in_javascript(part: str, function: str, cases: list[dict]) -> list[dict]:
    """What a function over those of a part answers to each of `cases`."""
    source = "\n".join((PARTS / f"{name}.js").read_text(encoding="utf-8") for name in ("numbers", "picture", part))
    return by_node(f"{source}\nconsole.log(JSON.stringify(sent.map({function})))", cases)


def test_keys_are_shared_out_edited_and_counted_to_the_last_one():
    draw, cases = np.random.default_rng(0), []
    for case in range(40):
        layers, heads, kv_heads = [(3, 4, 2), (2, 2, 2), (6, 8, 8), (4, 6, 1)][case % 4]
        ranks = np.exp(draw.normal(3, 2, (layers, heads)))
        if case % 5 == 0:
            ranks = np.round(ranks)  # heads whose remainders are equal
        if case == 7:
            ranks[:] = 0
        if case == 11:
            ranks[0, 0] = 5e-324  # as good as nothing
        cases.append(
            {"ranks": ranks.ravel().tolist(), "heads": heads, "kv_heads": kv_heads, "floor": FLOOR}
            | {"length": int(draw.integers(8, 3000)), "share": float(np.exp(draw.uniform(np.log(0.02), 0)))}
            | {"cap": int(draw.integers(1, 600)), "edits": EDITS[case % len(EDITS)], "keep_total": case % 3 > 0}
        )
    refused = 0
    for case, answer in zip(cases, in_javascript("budgets", BUDGETS, cases), strict=True):
        ranks = np.array(case["ranks"]).reshape(-1, case["heads"])
        total = budget_for_reads(ranks, case["share"], case["length"])
        start = allocate_budget(ranks, total)
        assert (answer["total"], answer["start"]) == (total, start.ravel().tolist())
        try:
            budgets, _ = edited(start, ranks, case["edits"], case["keep_total"])
        except BadSetting:
            refused += 1
            assert answer["budgets"] is None
            continue
        assert answer["budgets"] == budgets.ravel().tolist()
        for name, value in reads(budgets, case["cap"], case["length"], case["kv_heads"]).items():
            assert answer.get(name, value) == pytest.approx(value, rel=1e-12), name
    assert 0 < refused < 10


def test_curves_are_read_between_their_budgets():
    draw = np.random.default_rng(1)
    points = [1, 2, 3, 4, 6, 8, 16, 32, 64]
    curves = draw.uniform(size=(5, len(points)))
    curves[0, 3] = np.nan
    places = [1, 1.25, 2.0, 3.5, 5, 7.75, 20, 63.5, 64, 0.5, 80]
    values = [[None if np.isnan(value) else value for value in row] for row in curves]
    cases = [{"points": points, "values": row, "visited": visited} for row in values for visited in places]
    answers = in_javascript("routing", "({ points, values, visited }) => at(points, values, visited)", cases)
    wanted = [at_budget(row, points, visited) for row in curves for visited in places]
    for answer, value, question in zip(answers, wanted, cases, strict=True):
        assert answer is None if np.isnan(value) else answer == pytest.approx(value, abs=1e-12), question
