"""What a window loses and an arm gives back, pairs, windows of equal pairs and the verdict: by hand."""

import math

import numpy as np
import pytest
import torch

from analysis.studies.stored import measured
from analysis.studies.stored.measured import Measured, read_pairs
from lab.focus.recovery import choose_window, claims, compare, recovery, summary
from lab.harness.routed import equal_pairs_window, window_pairs

GROUPS = "AABBAB"
READ = 1 + 2 + 3 + 3 + 4 + 5  # window 2 and one sink: keys that each of those six tokens reads


def test_recovery_by_hand_and_paired():
    dense, window, arm = np.array([1.0, 2.0]), np.array([2.0, 4.0]), np.array([1.5, 2.5])
    both = np.arange(2)
    assert recovery(window - arm, window, dense, both).mean == pytest.approx(2 / 3)  # (0.5 + 1.5) of (1 + 2)
    assert recovery(window - dense, window, dense, both).mean == 1
    assert recovery(window - window, window, dense, both).mean == 0
    assert recovery(dense - arm, dense, dense, both).mean is None, "where nothing is lost nothing is recovered"
    control = np.array([1.8, 2.8])
    comparison = compare(arm, control, window, dense, both)
    assert comparison["difference"] == pytest.approx(-0.3) and comparison["points"] == pytest.approx(100 * 0.6 / 3)
    assert comparison["low"] is None and comparison["units"] == 2, "two texts draw no bar"
    assert comparison["difference_points"] == pytest.approx([-0.3, -0.3])
    # Windows differ by whole nats and arms by hundredths: only the pairing shows it.
    dense = np.random.default_rng(0).normal(4, 1, 80)
    documents = np.arange(80) // 8
    comparison = compare(dense + 0.05, dense + 0.06, dense + 0.10, dense, documents)
    assert comparison["difference_points"] is None and comparison["low"] == pytest.approx(-0.01)
    assert comparison["high"] == pytest.approx(-0.01) and comparison["units"] == 10
    assert comparison["points_low"] == pytest.approx(10)
    assert recovery(np.full(80, 0.05), dense + 0.1, dense, documents).low == pytest.approx(0.5)


def test_the_window_is_3_percent_worse_and_that_of_equal_pairs_is_judged():
    dense = np.full(4, 3.0)
    worse = {8: 0.2, 16: 0.05, 32: math.log(1.03) + 1e-9, 64: math.log(1.03) - 1e-3}
    assert choose_window({w: dense + loss_added for w, loss_added in worse.items()}, dense) == 32
    assert choose_window({8: dense, 16: dense + 0.01}, dense) is None
    assert verdict(made_up())["holds"] and verdict(made_up())["window_better"] is False
    wider = verdict(made_up(**{"window 5": (0.01, 0.005, 0.02)}))
    assert wider["window_better"] is True and wider["holds"], "a window that is better refutes nothing else"
    assert verdict(made_up(**{"window 5": (0.01, -0.005, 0.02)}))["window_better"] is None
    assert verdict(made_up(), shares=(0.3,), groups=4)["balanced"], "twice an even share is the limit"


@pytest.mark.parametrize("block", [1024, 4])
def test_pairs_by_hand(monkeypatch, block):
    monkeypatch.setattr(measured, "BLOCK", block)
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
    rows = {"random tokens": (-0.02, -0.03, -0.01), "random centroids": (-0.01, -0.02, -0.005)}
    rows |= {"k-means": (-0.03, -0.04, -0.02), "window 5": (-0.004, -0.006, -0.002)} | changes
    names = ("difference", "low", "high")
    return {
        name: dict(zip(names, row, strict=True)) | {"points": -1000 * row[0], "points_low": 12.0, "points_high": 25.0}
        for name, row in rows.items()
    }


def verdict(comparisons: dict, shares=(0.2, 0.24), groups: int = 8, headroom: bool = True) -> dict:
    return claims(comparisons, "window 5", list(shares), groups, headroom)


NOT = {
    "worse than random tokens": ({"random tokens": (0.02, 0.01, 0.03)}, {}, "beats", False),
    "an interval around 0": ({"random tokens": (-0.02, -0.05, 0.01)}, {}, "beats", None),
    "no interval": ({"random tokens": (-0.02, None, None)}, {}, "beats", None),
    "too few points": ({"random tokens": (-0.01, -0.02, -0.005)}, {}, "points_reached", False),
    "not better than k-means": ({"k-means": (0.001, -0.01, 0.02)}, {}, "holds", False),
    "one large group": ({}, {"shares": (0.1, 0.3)}, "balanced", False),
    "nothing to recover": ({}, {"headroom": False}, "headroom", False),
}


@pytest.mark.parametrize("case", NOT)
def test_the_verdict_when_something_does_not_hold(case):
    changes, arguments, key, value = NOT[case]
    result = verdict(made_up(**changes), **arguments)
    assert not result["holds"] and (result["beats"]["random tokens"] if key == "beats" else result[key]) is value


def test_the_summary_of_made_up_losses():
    """Five documents; every arm a fixed distance above dense."""
    dense = np.random.default_rng(1).normal(3, 0.5, (16, 7))
    above = {"dense": 0.0, "window 8": 0.10, "window 5": 0.06, "k-means": 0.09}
    above |= {"trained": 0.05, "trained, soft": 0.02, "trained, literal": 0.04}
    above |= {f"random tokens {s}": 0.07 + s / 100 for s in (0, 1, 2)} | {f"random centroids {s}": 0.09 for s in (0, 1)}
    even, pairs = np.full((16, 2, 8), 4), np.full((16, 2), 30)
    table = summary(
        {name: Measured(dense + loss_added, pairs, even) for name, loss_added in above.items()},
        8,
        5,
        8,
        np.arange(16) % 5,
    )
    rows = {row["arm"]: row for row in table["rows"]}
    assert list(rows)[-2:] == ["random tokens", "random centroids"] and len(rows) == 9
    assert rows["trained"]["recovery"] == pytest.approx(0.5) and rows["random tokens"]["recovery"] == pytest.approx(0.2)
    assert np.ptp(rows["random tokens"]["seed_losses"]) == pytest.approx(0.02)
    assert rows["trained"]["largest_share"] == [1 / 8, 1 / 8] and rows["dense"]["pairs_share"] == 30 / 36
    against = {row["control"]: row for row in table["comparisons"]}
    assert against["random tokens"]["points"] == pytest.approx(30) and against["dense"]["difference"] > 0
    assert table["soft_minus_hard"] == pytest.approx(-0.03) and table["literal_minus_causal"] == pytest.approx(-0.01)
    assert table["claims"]["holds"] and table["equal_pairs"]["arm"] == "window 5"
