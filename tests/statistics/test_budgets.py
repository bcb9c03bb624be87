"""Sharing keys out over heads: by hand, exact sums on a thousand cases, reads by counting, edits."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import analysis
from analysis.errors import AnalysisError, BadSetting
from analysis.metrics.budgets import allocate_budget, budget_for_reads, edited, read_pairs, reads

RANKS = st.integers(1, 5).flatmap(
    lambda heads: st.lists(
        st.lists(st.floats(0, 1e4, allow_subnormal=False), min_size=heads, max_size=heads), min_size=1, max_size=6
    )
)


def test_by_hand():
    """16 keys, 8 of them as the floor of 4 heads; quotas of the rest are 0.8, 1.6, 2.4, 3.2: 6 whole, 2 left over."""
    found = allocate_budget([[1, 2], [3, 4]], 16)
    assert found.tolist() == [[2 + 1, 2 + 2], [2 + 2, 2 + 3]] and found.dtype.kind == "i"
    assert analysis.allocate_budget is allocate_budget


def test_ties_go_to_the_lower_flat_index():
    assert allocate_budget([[1, 1, 1]], 3 * 2 + 4).tolist() == [[4, 3, 3]]
    assert allocate_budget([[5, 5], [5, 5]], 11, floor=2).tolist() == [[3, 3], [3, 2]]
    assert allocate_budget([[0.1, 0.2], [0.3, 0.4]], 8 + 5).tolist() == [[3, 3], [3, 4]], "0.5, 1, 1.5, 2 of 5"
    assert allocate_budget([[0, 0, 0]], 7).tolist() == [[3, 2, 2]]


def test_the_floor_alone():
    assert allocate_budget([[9, 1]], 4).tolist() == [[2, 2]]
    assert allocate_budget([[9, 1]], 10, floor=0).tolist() == [[9, 1]]


SUMS = given(RANKS, st.integers(0, 50_000), st.integers(0, 5))


@settings(max_examples=100)
@SUMS
def test_the_sum_is_exact_and_every_share_is_its_quota_rounded(ranks, more, floor):
    sum_and_quotas(ranks, more, floor)


@pytest.mark.slow
@settings(max_examples=1000)
@SUMS
def test_and_so_in_a_thousand_cases(ranks, more, floor):
    sum_and_quotas(ranks, more, floor)


def sum_and_quotas(ranks, more, floor):
    ranks = np.array(ranks)
    budget = floor * ranks.size + more
    found = allocate_budget(ranks, budget, floor)
    assert found.sum() == budget and found.min() >= floor and found.shape == ranks.shape
    exact = [Fraction(rank) for rank in ranks.ravel().tolist()]
    whole = sum(exact)
    remainders = []
    for share, rank in zip(found.ravel().tolist(), exact, strict=True):
        quota = more * (rank / whole if whole else Fraction(1, len(exact)))
        assert int(quota) <= share - floor <= int(quota) + 1, "largest remainder stays within its quota"
        remainders.append((share - floor > int(quota), quota - int(quota)))
    up, down = ([r for rose, r in remainders if rose is want] for want in (True, False))
    assert not up or not down or min(up) >= max(down), "the largest remainders got the leftovers"


@pytest.mark.parametrize(
    "ranks, budget, floor, said",
    [
        ([[1, 2], [3, 4]], 7, 2, "A budget of 7 keys is below the floor: 4 heads need at least 2 each, 8 in all."),
        ([1, 2], 9, 2, "shape"),
        ([[1, float("nan")]], 9, 2, "other values"),
        ([[1, -2]], 9, 2, "other values"),
        ([[1, 2]], 9.5, 2, "budget is 9.5"),
        ([[1, 2]], 9, -1, "floor is -1"),
        ([[]], 9, 2, "shape"),
    ],
)
def test_what_cannot_be_shared_out_is_refused(ranks, budget, floor, said):
    with pytest.raises(AnalysisError, match=said):
        allocate_budget(ranks, budget, floor)


def test_reads_by_counting():
    budgets, length = np.array([[1, 3], [8, 200]]), 10
    for cap in (None, 1, 5, 99):
        pairs = sum(min(b, cap or b, i + 1) for b in budgets.ravel() for i in range(length))
        found = reads(budgets, cap, length)
        assert read_pairs(budgets, cap, length) == pairs
        assert found["reads_causal"] == pairs / (4 * 55) and found["reads_full"] == pairs / 400
        assert found["attended"] == pairs / 40 and found["kv_read"] == (1 + found["reads_causal"]) / 2
    assert reads(budgets, None, 1)["reads_causal"] == 1


@pytest.mark.parametrize("cap", [None, 1, 5, 99])
def test_reads_of_heads_that_share_keys_lie_between_their_largest_and_their_sum(cap):
    budgets, length = np.array([[1, 3, 8, 200], [2, 2, 4, 5]]), 10
    kept = np.minimum(budgets, cap or length)
    found = reads(budgets, cap, length, kv_heads=2)
    pairs = [kept[:, :2], kept[:, 2:]]
    least = sum(min(b, i + 1) for pair in pairs for b in pair.max(1) for i in range(length))
    most = sum(min(b, i + 1) for pair in pairs for b in pair.sum(1) for i in range(length))
    assert (found["reads_kv_least"], found["reads_kv_most"]) == (least / (4 * 55), most / (4 * 55))
    assert found["kv_read"] == (1 + found["reads_kv_least"]) / 2
    assert found["reads_causal"] <= found["reads_kv_least"] <= found["reads_kv_most"] <= 1
    alone = reads(budgets, cap, length)
    assert alone["reads_kv_least"] == alone["reads_kv_most"] == alone["reads_causal"], "each head has its own keys"


@settings(max_examples=100)
@given(RANKS, st.integers(1, 300), st.integers(1, 300), st.integers(0, 999))
def test_reads_grow_with_the_cap(ranks, cap, length, more):
    budgets = allocate_budget(ranks, 2 * np.size(ranks) + more)
    shares = [reads(budgets, one, length)["reads_causal"] for one in (cap, cap + 1, 2 * cap, None)]
    assert shares == sorted(shares) and 0 < shares[0] and shares[-1] <= 1


def test_a_total_for_a_share_of_the_reads():
    ranks = np.array([[3.0, 40.0, 11.0], [150.0, 2.0, 60.0]])
    for share in (0.02, 0.1, 0.5, 1.0):
        total = budget_for_reads(ranks, share, 256)
        read = reads(allocate_budget(ranks, total), None, 256)["reads_causal"]
        assert read >= share - 1e-12
        if total > 12:
            less = read_pairs(allocate_budget(ranks, total - 1), None, 256)
            assert less < share * 6 * 256 * 257 / 2, "one key less reads less than that"
    with pytest.raises(BadSetting, match="share of reads is 0"):
        budget_for_reads(ranks, 0, 256)


BASE = np.array([[10, 20, 30], [40, 50, 60]])


def test_edits_of_a_row_a_column_a_cell_and_a_selection():
    edits = [{"layer": 0, "scale": 0.5}, {"head": 2, "set": 7}]
    edits += [{"layer": 1, "head": 0, "set": 1}, {"cells": [4], "scale": 0}]
    found, fixed = edited(BASE, BASE, edits, keep_total=False)
    assert found.tolist() == [[5, 10, 7], [1, 1, 7]] and fixed.all()
    assert edited(BASE, BASE, [{"scale": 1.25}], False)[0].tolist() == [[13, 25, 38], [50, 63, 75]], "halves go up"
    assert edited(BASE, BASE, [], True)[0].tolist() == BASE.tolist()


def test_the_total_is_kept_by_the_cells_that_no_edit_names():
    """198 keys are left for ranks 40, 50, 60: the pin holds what the first edit made of the cell, not the old 40."""
    shared = allocate_budget([[40, 50, 60]], 210 - 12)[0].tolist()
    found, fixed = edited(BASE, BASE, [{"layer": 0, "set": 4}, {"cells": [3], "pin": True}], keep_total=True)
    assert found.sum() == BASE.sum() and found[0].tolist() == [4, 4, 4] and found[1].tolist() == shared
    assert fixed.tolist() == [[True] * 3, [True, False, False]]
    found, _ = edited(BASE, BASE, [{"layer": 0, "set": 4}, {"cells": [3], "scale": 0.5}], keep_total=True)
    assert found[1, 0] == shared[0] // 2 + shared[0] % 2 and found.sum() == BASE.sum()
    assert edited(BASE, BASE, [{"set": 5}], keep_total=True)[0].sum() == 30, "where all are edited the total moves"


@pytest.mark.parametrize(
    "edit, said",
    [
        ({"layer": 2, "set": 4}, "There is no layer 2: there are 0 to 1"),
        ({"cells": [6], "set": 4}, "There is no cell 6"),
        ({"set": 0}, "cannot set '0'"),
        ({"set": 4.5}, "cannot set"),
        ({"scale": -1}, "cannot scale"),
        ({"pin": False}, "cannot pin"),
        ({"set": 4, "pin": True}, "is no edit"),
        ({"layer": 0}, "is no edit"),
        ("all", "is no edit"),
        ({"layer": 0, "set": 205}, "take 615 of 210 keys and the other 3"),
    ],
)
def test_bad_edits_are_refused(edit, said):
    with pytest.raises(BadSetting, match=said):
        edited(BASE, BASE, [edit], keep_total=True)
