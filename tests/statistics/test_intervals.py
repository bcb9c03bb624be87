"""The bootstrap: units of consecutive values, short units, ratios, and honesty about few of them."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from analysis.errors import BadSetting
from analysis.metrics.intervals import (
    BLOCKS,
    bootstrap_mean,
    bootstrap_ratio,
    crossed_interval,
    holm,
    interval,
    p_value,
    ratio_interval,
    smallest_effect,
    upper_limit,
)


def test_mean_and_units_by_hand_with_a_short_last_unit():
    found = bootstrap_mean([1.0, 2.0, 3.0, 4.0, 10.0], unit=2)
    assert (found.mean, found.units) == (4.0, 3) and found.state == "few units, rough interval"
    # Units [1, 2], [3, 4], [10]: resampled means run from 1.5 (thrice the first) to 10 (thrice the last).
    assert found.low == 1.5 and 7 < found.high <= 10


def test_no_interval_from_one_unit_and_none_without_values():
    assert bootstrap_mean([1.0, 3.0], unit=8) == (2.0, None, None, 1, "none")
    assert bootstrap_mean([1.0]).state == "one unit, no interval"
    assert bootstrap_mean([])[:4] == (None, None, None, 0) and bootstrap_mean([]).state == "no values"
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
    assert constant[:4] == (1.5, 1.5, 1.5, 5)
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


@pytest.mark.parametrize(
    "draw, true, units, least",
    [("normal", 0.0, n, 0.935) for n in (5, 8, 16, 30)] + [("lognormal", np.exp(0.5), n, 0.90) for n in (16, 30)],
)
def test_an_interval_holds_the_true_mean_as_often_as_it_says(draw, true, units, least):
    """Definitions 5.2, by simulation: the percentile bootstrap held it in 74 of 100 samples of 3, 88 of 8."""
    random = np.random.default_rng(1)
    samples = getattr(random, draw)(size=(2000, units))
    found = [interval(values) for values in samples]
    assert np.mean([one.low <= true <= one.high for one in found]) >= least


def test_an_interval_by_hand():
    found = interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert found.mean == 3 and found.units == 5 and found.method == "t"
    assert found.high - 3 == pytest.approx(2.776445 * (2.5 / 5) ** 0.5, rel=1e-6), "t of 4 degrees, standard error .707"
    assert interval([1.0, 2.0, 3.0, 4.0])[1:] == (None, None, 4, "none"), "four points are shown as points"
    assert interval([2.0] * 6)[:3] == (2.0, 2.0, 2.0)
    assert interval(np.arange(7), fewest=BLOCKS).low is None and interval(np.arange(8), fewest=BLOCKS).low is not None
    assert interval([0.0] * 14 + [1.0, 9.0]).method == "bootstrap-t", "skewed units"


def test_a_ratio_is_of_sums_with_a_studentised_interval():
    found = ratio_interval([2.0, 4.0, 6.0, 8.0, 11.0], [1.0, 2.0, 3.0, 4.0, 5.0])
    assert found.mean == 31 / 15 and found.method == "bootstrap-t" and found.low <= found.mean <= found.high
    assert ratio_interval([1.0] * 5, [0.0] * 5).mean is None


def test_seeds_and_documents_both_enter():
    random = np.random.default_rng(0)
    seeds, documents = random.normal(size=(3, 1)), random.normal(size=(1, 20)) * 0.01
    crossed, pooled = crossed_interval(seeds + documents), interval((seeds + documents).mean(0))
    assert crossed.high - crossed.low > 20 * (pooled.high - pooled.low), "three seeds that differ decide nothing"
    assert crossed_interval(np.ones((2, 20))).low is None and crossed_interval(np.ones((3, 4))).low is None


def test_one_sided_limits_and_many_comparisons():
    values = np.random.default_rng(2).normal(0.5, 1, 40)
    assert interval(values).mean < upper_limit(values) < interval(values).high
    assert holm([0.01, 0.04, 0.03]).tolist() == pytest.approx([0.03, 0.06, 0.06])
    assert p_value([1.0, -1.0, 1.0, -1.0]) == 1.0 and p_value([1.0]) is None
    assert smallest_effect(interval(np.arange(10.0))) == pytest.approx(
        2.8 * 2.262157 / 1.96 * (55 / 6 / 10) ** 0.5, rel=1e-5
    )
