"""What a window loses and an arm gives back, pairs, windows of equal pairs and the verdict: by hand."""

import math

import numpy as np
import pytest
import torch

from analysis.studies.stored.measured import Measured, read_pairs
from lab.harness.recovery import (
    choose_window,
    claims,
    compare,
    equal_pairs_window,
    recovery,
    sentence,
    summary,
    window_pairs,
)

GROUPS = "AABBAB"
READ = 1 + 2 + 3 + 3 + 4 + 5  # window 2 and one sink: keys that each of those six tokens reads


def test_recovery_by_hand():
    dense, window, arm = np.array([1.0, 2.0]), np.array([2.0, 4.0]), np.array([1.5, 2.5])
    both = np.arange(2)
    assert recovery(arm, window, dense, both).mean == pytest.approx(2 / 3)  # (0.5 + 1.5) of (1 + 2)
    assert recovery(dense, window, dense, both).mean == 1 and recovery(window, window, dense, both).mean == 0
    assert recovery(arm, dense, dense, both).mean is None, "a window that loses nothing leaves nothing to recover"
    control = np.array([1.8, 2.8])
    found = compare(arm, control, window, dense, both)
    assert found["difference"] == pytest.approx(-0.3) and found["points"] == pytest.approx(100 * 0.6 / 3)
    assert found["low"] is None and found["units"] == 2, "two texts draw no bar"
    assert found["difference_points"] == pytest.approx([-0.3, -0.3])


def test_recovery_is_paired():
    """Windows differ by whole nats and arms by hundredths: only the pairing shows it."""
    dense = np.random.default_rng(0).normal(4, 1, 80)
    documents = np.arange(80) // 8
    found = compare(dense + 0.05, dense + 0.06, dense + 0.10, dense, documents)
    assert (
        found["difference_points"] is None
        and found["low"] == pytest.approx(-0.01)
        and found["high"] == pytest.approx(-0.01)
        and found["units"] == 10
    )
    assert found["points_low"] == pytest.approx(10)
    assert recovery(dense + 0.05, dense + 0.1, dense, documents).low == pytest.approx(0.5)


def test_the_window_is_the_largest_that_is_3_percent_worse():
    dense = np.full(4, 3.0)
    worse = {8: 0.2, 16: 0.05, 32: math.log(1.03) + 1e-9, 64: math.log(1.03) - 1e-3}
    assert choose_window({w: dense + more for w, more in worse.items()}, dense) == 32
    assert choose_window({8: dense, 16: dense + 0.01}, dense) is None


def test_pairs_by_hand():
    members = torch.tensor([[letter == "A", letter == "B"] for letter in GROUPS])
    assert read_pairs(members, window=2, n_sink=1) == READ == 18
    assert read_pairs(torch.zeros(6, 2, dtype=torch.bool), 2, 1) == window_pairs(2, 6, 1) == 1 + 2 + 3 + 3 + 3 + 3
    assert window_pairs(3, 6, 1) == 1 + 2 + 3 + 4 + 4 + 4 == READ and equal_pairs_window(READ, 6, 1) == 3
    assert equal_pairs_window(16.5, 6, 1) == 2, "of two that are as near, the smaller one"
    assert equal_pairs_window(1000, 6) == 6 and equal_pairs_window(0, 6) == 1 and window_pairs(6, 6, 2) == 21
    for window in range(1, 14):
        for sinks in (0, 1, 5, 20):
            assert window_pairs(window, 12, sinks) == read_pairs(torch.zeros(12, 1), window, sinks)


def made_up(**changes) -> tuple[dict, dict, list[float]]:
    """Comparisons in which everything holds, but for `changes` {control: (difference, low, high)}."""
    given = {"random tokens": (-0.02, -0.03, -0.01), "random centroids": (-0.01, -0.02, -0.005)}
    given |= {"k-means": (-0.03, -0.04, -0.02), "window 5": (-0.004, -0.006, -0.002)} | changes
    names = ("difference", "low", "high")
    return {
        name: dict(zip(names, row, strict=True)) | {"points": -1000 * row[0], "points_low": 12.0, "points_high": 25.0}
        for name, row in given.items()
    }


def verdict(
    comparisons: dict, shares=(0.2, 0.24), groups: int = 8, headroom: bool = True, random: float = 0.3
) -> tuple[dict, str]:
    found = claims(comparisons, "window 5", list(shares), groups, headroom)
    equal = {"arm": "window 5", "window": 5, "pairs": 100.0, "trained_pairs": 101.0}
    reads = {"random tokens": random, "random centroids": 0.3, "k-means": 0.3, "trained": 0.3}
    rows = {name: {"pairs_share": share} for name, share in reads.items()}
    rows["trained"] |= {"recovery": 0.4, "low": 0.3, "high": 0.5}
    return found, sentence(found, comparisons, equal, rows, 16)


def test_the_verdict_when_all_holds():
    found, said = verdict(made_up())
    assert found["holds"] and found["window_better"] is False
    assert said.startswith(
        "The groups of this router do more than random ones here. With a window of 16, the groups of this router beat "
    ), "one router of one seed says nothing of a method"
    assert "beat random tokens (−0.0200 nats per token, 95% interval −0.0300 to −0.0100)" in said
    assert "recover 40% (30% to 50%) of what the window loses, +20.0 points (+12.0 to +25.0) against" in said
    assert (
        "They beat a window of 5, which reads as many pairs (100, the groups 101): groups minus window −0.0040" in said
    )
    assert "at most 24.0% of a layer's tokens (the limit is 25%)" in said


def test_a_control_that_reads_fewer_pairs_is_named_so():
    said = verdict(made_up(), random=0.2)[1]
    assert "random ones here, which read fewer pairs. With" in said and "; of fewer pairs, 20.0% against 30.0%)" in said
    assert said.count("pairs, ") == 1, "the others read as many"


NOT = {
    "worse than random tokens": (
        {"random tokens": (0.02, 0.01, 0.03)},
        {},
        "The groups of this router do not beat random ones",
    ),
    "an interval around 0": (
        {"random tokens": (-0.02, -0.05, 0.01)},
        {},
        "do not differ significantly from random ones",
    ),
    "no interval": ({"random tokens": (-0.02, None, None)}, {}, "are not judged against random tokens"),
    "too few points": ({"random tokens": (-0.01, -0.02, -0.005)}, {}, "not everything that the claim asks for holds"),
    "not better than k-means": ({"k-means": (0.001, -0.01, 0.02)}, {}, "do not differ significantly from k-means"),
    "one large group": ({}, {"shares": (0.1, 0.3)}, "up to 30.0% of a layer's tokens"),
    "nothing to recover": ({}, {"headroom": False}, "No window alone is 3% worse than dense here"),
}


@pytest.mark.parametrize("case", NOT)
def test_the_verdict_when_something_does_not_hold(case):
    changes, more, said = NOT[case]
    found, words = verdict(made_up(**changes), **more)
    assert not found["holds"] and said in words


def test_the_verdict_on_the_window_of_equal_pairs_stands_in_the_first_line():
    found, said = verdict(made_up(**{"window 5": (0.01, 0.005, 0.02)}))
    assert found["window_better"] is True and found["holds"], "an allowed first line"
    assert said.split(". ")[0].endswith("and a wider window of equal pairs is better")
    assert verdict(made_up(**{"window 5": (0.01, -0.005, 0.02)}))[0]["window_better"] is None
    assert verdict(made_up(), shares=(0.3,), groups=4)[0]["balanced"], "twice an even share is the limit"


def test_the_summary_of_made_up_losses():
    """Five documents; every arm a fixed distance above dense."""
    dense = np.random.default_rng(1).normal(3, 0.5, (16, 7))
    above = {"dense": 0.0, "window 8": 0.10, "window 5": 0.06, "k-means": 0.09}
    above |= {"trained": 0.05, "trained, soft": 0.02, "trained, literal": 0.04}
    above |= {f"random tokens {s}": 0.07 + s / 100 for s in (0, 1, 2)} | {f"random centroids {s}": 0.09 for s in (0, 1)}
    even, pairs = np.full((16, 2, 8), 4), np.full((16, 2), 30)
    found = summary(
        {name: Measured(dense + more, pairs, even) for name, more in above.items()}, 8, 5, 8, np.arange(16) % 5
    )
    rows = {row["arm"]: row for row in found["rows"]}
    assert list(rows)[-2:] == ["random tokens", "random centroids"] and len(rows) == 9
    assert rows["trained"]["recovery"] == pytest.approx(0.5) and rows["random tokens"]["recovery"] == pytest.approx(0.2)
    assert np.ptp(rows["random tokens"]["seed_losses"]) == pytest.approx(0.02)
    assert rows["trained"]["largest_share"] == [1 / 8, 1 / 8] and rows["dense"]["pairs_share"] == 30 / 36
    against = {row["control"]: row for row in found["comparisons"]}
    assert against["random tokens"]["points"] == pytest.approx(30) and against["dense"]["difference"] > 0
    assert found["soft_minus_hard"] == pytest.approx(-0.03) and found["literal_minus_causal"] == pytest.approx(-0.01)
    assert found["claims"]["holds"] and found["equal_pairs"]["arm"] == "window 5"
