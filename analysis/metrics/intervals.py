"""The one bootstrap of the project: percentile intervals over units of consecutive values.

Neighbouring windows of a text are alike, so single windows would give intervals that are too narrow; 8 consecutive ones
form a unit, and units are drawn with replacement.
"""

from typing import NamedTuple

import numpy as np

from analysis.errors import BadSetting

UNIT = 8  # consecutive values
FEW = 10  # units below which an interval is rough
LEVEL = 0.95


class Interval(NamedTuple):
    """A mean with its 95 % interval; None where the data cannot give one."""

    mean: float | None
    low: float | None
    high: float | None
    units: int

    @property
    def state(self) -> str:
        """What to say beside it: "no values", "one unit, no interval", "few units, rough interval" or "ok"."""
        if self.units == 0 or self.mean is None:
            return "no values"
        if self.low is None:
            return "one unit, no interval"
        return "few units, rough interval" if self.units < FEW else "ok"


def bootstrap_mean(values, unit: int = UNIT, draws: int = 2000, seed: int = 0) -> Interval:
    """Mean of values [n] with the percentile interval of `draws` resamples of units of `unit` consecutive values.

    The last unit may be shorter and then weighs less. For paired differences pass the differences. One unit gives no
    interval (None), fewer than 10 a rough one (`state` says so). Errors: BadSetting for values that are not finite.
    """
    values = _vector(values)
    return _bootstrap(values, np.ones_like(values), unit, draws, seed)


def bootstrap_ratio(numerator, denominator, unit: int = UNIT, draws: int = 2000, seed: int = 0) -> Interval:
    """sum(numerator) / sum(denominator) of paired values [n], e.g. losses and token counts; otherwise as
    `bootstrap_mean`.

    Resamples whose denominator sums to 0 are left out. Errors: BadSetting also for unequal lengths.
    """
    numerator, denominator = _vector(numerator), _vector(denominator)
    if len(numerator) != len(denominator):
        raise BadSetting(f"A ratio needs paired values, and got {len(numerator)} and {len(denominator)}.")
    return _bootstrap(numerator, denominator, unit, draws, seed)


def _bootstrap(above: np.ndarray, below: np.ndarray, unit: int, draws: int, seed: int) -> Interval:
    if unit < 1 or draws < 1:
        raise BadSetting(f"A bootstrap needs units of at least 1 value and at least 1 draw, got {unit} and {draws}.")
    edges = np.arange(0, len(above), unit)
    units = len(edges)
    if units == 0 or below.sum() == 0:
        return Interval(None, None, None, units)
    above, below = np.add.reduceat(above, edges), np.add.reduceat(below, edges)  # [units]
    mean = float(above.sum() / below.sum())
    if units == 1:
        return Interval(mean, None, None, 1)
    random, ratios = np.random.default_rng(seed), []
    for start in range(0, draws, 256):
        rows = random.integers(0, units, (min(256, draws - start), units))
        tops, bottoms = above[rows].sum(1), below[rows].sum(1)
        ratios.append(tops[bottoms != 0] / bottoms[bottoms != 0])
    low, high = np.quantile(np.concatenate(ratios), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(mean, float(low), float(high), units)


def _vector(values) -> np.ndarray:
    values = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values, dtype=np.float64).reshape(-1)
    if not np.isfinite(values).all():
        raise BadSetting(
            f"{int((~np.isfinite(values)).sum())} of {len(values)} values are not finite numbers; no mean exists."
        )
    return values
