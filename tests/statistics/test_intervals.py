"""The bootstrap: units of consecutive values, short units, ratios, and honesty about few of them."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from analysis.errors import BadSetting
from analysis.metrics.intervals import bootstrap_mean, bootstrap_ratio


def test_mean_and_units_by_hand_with_a_short_last_unit():
    found = bootstrap_mean([1.0, 2.0, 3.0, 4.0, 10.0], unit=2)
    assert (found.mean, found.units) == (4.0, 3) and found.state == "few units, rough interval"
    # Units [1, 2], [3, 4], [10]: resampled means run from 1.5 (thrice the first) to 10 (thrice the last).
    assert found.low == 1.5 and 7 < found.high <= 10


def test_no_interval_from_one_unit_and_none_without_values():
    mean, low, high, units = bootstrap_mean([1.0, 3.0], unit=8)
    assert (mean, low, high, units) == (2.0, None, None, 1)
    assert bootstrap_mean([1.0]).state == "one unit, no interval"
    assert bootstrap_mean([]) == (None, None, None, 0) and bootstrap_mean([]).state == "no values"
    assert bootstrap_ratio([1.0, 1.0], [0.0, 0.0]).mean is None


def test_width_is_that_of_the_normal_theory():
    values = np.random.default_rng(0).normal(5, 2, 4000)
    found = bootstrap_mean(values, unit=1)
    assert found.state == "ok" and found.units == 4000
    assert found.high - found.low == pytest.approx(2 * 1.96 * 2 / 4000**0.5, rel=0.1)


def test_units_widen_the_interval_of_values_that_hang_together():
    values = np.repeat(np.random.default_rng(1).normal(size=100), 8)
    narrow, wide = bootstrap_mean(values, unit=1), bootstrap_mean(values, unit=8)
    assert (wide.high - wide.low) / (narrow.high - narrow.low) == pytest.approx(8**0.5, rel=0.15)


def test_ratio_is_of_sums_and_repeatable():
    found = bootstrap_ratio([2.0, 1.0, 0.0, 9.0], [1.0, 1.0, 2.0, 2.0], unit=1, seed=3)
    assert found.mean == 2.0 and found == bootstrap_ratio([2.0, 1.0, 0.0, 9.0], [1.0, 1.0, 2.0, 2.0], unit=1, seed=3)
    constant = bootstrap_ratio([3.0] * 40, [2.0] * 40)
    assert constant == (1.5, 1.5, 1.5, 5)
    assert bootstrap_ratio([1.0, 1.0], [0.0, 1.0], unit=1).mean == 2.0  # resamples of zero denominator are left out


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60), st.integers(1, 9))
def test_interval_lies_within_the_values(values, unit):
    found = bootstrap_mean(values, unit=unit, draws=300)
    assert found.units == -(-len(values) // unit)
    if found.low is not None:
        assert min(values) - 1e-6 <= found.low <= found.high <= max(values) + 1e-6


@pytest.mark.parametrize(
    "call",
    [
        lambda: bootstrap_mean([1.0, float("nan")]),
        lambda: bootstrap_mean([1.0], unit=0),
        lambda: bootstrap_mean([1.0], draws=0),
        lambda: bootstrap_ratio([1.0], [1.0, 2.0]),
    ],
)
def test_refusals(call):
    with pytest.raises(BadSetting):
        call()
