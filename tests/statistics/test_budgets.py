"""Sharing keys out over heads: by hand, exact sums on hundreds of cases, reads by counting, edits."""

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


@pytest.mark.parametrize(
    "ranks, budget, floor, shares",
    [
        # 8 of 16 keys are the floor of 4 heads; quotas of the rest are 0.8, 1.6, 2.4, 3.2: 6 whole, 2 left over
        ([[1, 2], [3, 4]], 16, 2, [[2 + 1, 2 + 2], [2 + 2, 2 + 3]]),
        # ties go to the lower flat index
        ([[1, 1, 1]], 3 * 2 + 4, 2, [[4, 3, 3]]),
        ([[5, 5], [5, 5]], 11, 2, [[3, 3], [3, 2]]),
        # 0.5, 1, 1.5, 2 of 5
        ([[0.1, 0.2], [0.3, 0.4]], 8 + 5, 2, [[3, 3], [3, 4]]),
        ([[0, 0, 0]], 7, 2, [[3, 2, 2]]),
        ([[9, 1]], 4, 2, [[2, 2]]),
        ([[9, 1]], 10, 0, [[9, 1]]),
    ],
)
def test_by_hand(ranks, budget, floor, shares):
    result = analysis.allocate_budget(ranks, budget, floor)
    assert result.tolist() == shares and result.dtype.kind == "i"


SUMS = given(RANKS, st.integers(0, 50_000), st.integers(0, 5))


@settings(max_examples=100)
@SUMS
def test_the_sum_is_exact_and_every_share_is_its_quota_rounded(ranks, extra, floor):
    sum_and_quotas(ranks, extra, floor)


@pytest.mark.slow
@settings(max_examples=1000)
@SUMS
def test_and_so_in_a_thousand_cases(ranks, extra, floor):
    sum_and_quotas(ranks, extra, floor)


def sum_and_quotas(ranks, extra, floor):
    ranks = np.array(ranks)
    budget = floor * ranks.size + extra
    result = allocate_budget(ranks, budget, floor)
    assert result.sum() == budget and result.min() >= floor and result.shape == ranks.shape
    exact = [Fraction(rank) for rank in ranks.ravel().tolist()]
    total = sum(exact)
    remainders = []
    for share, rank in zip(result.ravel().tolist(), exact, strict=True):
        quota = extra * (rank / total if total else Fraction(1, len(exact)))
        assert int(quota) <= share - floor <= int(quota) + 1, "largest remainder stays within its quota"
        remainders.append((share - floor > int(quota), quota - int(quota)))
    up, down = ([r for rose, r in remainders if rose is want] for want in (True, False))
    assert not up or not down or min(up) >= max(down), "the largest remainders got the leftovers"


@pytest.mark.parametrize(
    "ranks, budget, floor",
    [
        ([[1, 2], [3, 4]], 7, 2),
        ([1, 2], 9, 2),
        ([[1, float("nan")]], 9, 2),
        ([[1, -2]], 9, 2),
        ([[1, 2]], 9.5, 2),
        ([[1, 2]], 9, -1),
        ([[]], 9, 2),
    ],
)
def test_what_cannot_be_shared_out_is_refused(ranks, budget, floor):
    with pytest.raises(AnalysisError):
        allocate_budget(ranks, budget, floor)


def test_a_floor_given_last_by_hand():
    """40 keys by ranks 1, 9 and 10 are 2, 18 and 20; the floor of 5 raises the first, and the sum to 43. Given first,
    5 each leave 25: 1.25, 11.25 and 12.5, of which the largest remainder gets the key that is left."""
    assert allocate_budget([[1, 9, 10]], 40, 5, "last").tolist() == [[5, 18, 20]]
    assert allocate_budget([[1, 9, 10]], 40, 5, "first").tolist() == [[6, 16, 18]]
    assert allocate_budget([[1, 1]], 2, 3, "last").tolist() == [[3, 3]], "a budget below the floors is raised to them"


@pytest.mark.parametrize("cap", [None, 1, 5, 99])
def test_reads_by_counting(cap):
    """Of heads with keys of their own, and of heads that share keys: between their largest and their sum."""
    budgets, length = np.array([[1, 3, 8, 200], [2, 2, 4, 5]]), 10
    retained = np.minimum(budgets, cap or length)
    alone, shared = reads(budgets, cap, length), reads(budgets, cap, length, kv_heads=2)
    pairs = sum(min(b, i + 1) for b in retained.ravel() for i in range(length))
    assert read_pairs(budgets, cap, length) == pairs
    assert alone["reads_causal"] == pairs / (8 * 55) and alone["reads_full"] == pairs / 800
    assert alone["attended"] == pairs / 80 and alone["kv_read"] == (1 + alone["reads_causal"]) / 2
    assert alone["reads_kv_least"] == alone["reads_kv_most"] == alone["reads_causal"]
    halves = retained.reshape(2, 2, 2)
    lowest, highest = (
        sum(min(b, i + 1) for b in of.ravel() for i in range(length)) for of in (halves.max(2), halves.sum(2))
    )
    assert (shared["reads_kv_least"], shared["reads_kv_most"]) == (lowest / (4 * 55), highest / (4 * 55))
    assert shared["kv_read"] == (1 + shared["reads_kv_least"]) / 2
    assert shared["reads_causal"] <= shared["reads_kv_least"] <= shared["reads_kv_most"] <= 1


@settings(max_examples=100)
@given(RANKS, st.integers(1, 300), st.integers(1, 300), st.integers(0, 999))
def test_reads_grow_with_the_cap(ranks, cap, length, extra):
    budgets = allocate_budget(ranks, 2 * np.size(ranks) + extra)
    shares = [reads(budgets, limit, length)["reads_causal"] for limit in (cap, cap + 1, 2 * cap, None)]
    assert shares == sorted(shares) and 0 < shares[0] and shares[-1] <= 1


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5, 1.0])
def test_a_total_for_a_share_of_the_reads(share):
    ranks = np.array([[3.0, 40.0, 11.0], [150.0, 2.0, 60.0]])
    total, causal = budget_for_reads(ranks, share, 256), 6 * 256 * 257 / 2
    assert read_pairs(allocate_budget(ranks, total), None, 256) >= share * causal * (1 - 1e-12)
    if total > 12:
        fewer = read_pairs(allocate_budget(ranks, total - 1), None, 256)
        assert fewer < share * causal, "one key less reads less than that"
    with pytest.raises(BadSetting, match="share of reads is 0"):
        budget_for_reads(ranks, 0, 256)


BASE = np.array([[10, 20, 30], [40, 50, 60]])


def test_edits_of_cells_and_the_total_that_the_others_keep():
    edits = [{"layer": 0, "scale": 0.5}, {"head": 2, "set": 7}]
    edits += [{"layer": 1, "head": 0, "set": 1}, {"cells": [4], "scale": 0}]
    result, fixed = edited(BASE, BASE, edits, keep_total=False)
    assert result.tolist() == [[5, 10, 7], [1, 1, 7]] and fixed.all()
    assert edited(BASE, BASE, [{"scale": 1.25}], False)[0].tolist() == [[13, 25, 38], [50, 63, 75]], "halves go up"
    assert edited(BASE, BASE, [], True)[0].tolist() == BASE.tolist()
    # 198 keys are left for ranks 40, 50, 60: the pin holds what the first edit made of the cell, not the old 40.
    shared = allocate_budget([[40, 50, 60]], 210 - 12)[0].tolist()
    result, fixed = edited(BASE, BASE, [{"layer": 0, "set": 4}, {"cells": [3], "pin": True}], keep_total=True)
    assert result.sum() == BASE.sum() and result.tolist() == [[4, 4, 4], shared]
    assert fixed.tolist() == [[True] * 3, [True, False, False]]
    result, _ = edited(BASE, BASE, [{"layer": 0, "set": 4}, {"cells": [3], "scale": 0.5}], keep_total=True)
    assert result[1, 0] == shared[0] // 2 + shared[0] % 2 and result.sum() == BASE.sum()
    assert edited(BASE, BASE, [{"set": 5}], keep_total=True)[0].sum() == 30, "where all are edited the total moves"


@pytest.mark.parametrize(
    "edit",
    [
        {"layer": 2, "set": 4},
        {"cells": [6], "set": 4},
        {"set": 0},
        {"set": 4.5},
        {"scale": -1},
        {"pin": False},
        {"set": 4, "pin": True},
        {"layer": 0},
        "all",
        # takes 615 of 210 keys
        {"layer": 0, "set": 205},
    ],
    ids=str,
)
def test_bad_edits_are_refused(edit):
    with pytest.raises(BadSetting):
        edited(BASE, BASE, [edit], keep_total=True)
