"""How sure a mean is: studentised intervals over independent units, which are documents, seeds, or blocks of one text.

A percentile bootstrap would cover 88% instead of 95 with 8 units and 51% with two (definitions 5).
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from ..errors import BadSetting

LEVEL = 0.95
# Fewer documents give no interval: the points themselves are shown.
DOCUMENTS = 5
# Fewer blocks of one text give none.
BLOCKS = 8
# Fewer trainings of an arm say nothing of its method.
SEEDS = 3
# Units whose skewness has a smaller p-value get the bootstrap-t.
SKEWED = 0.2
DRAWS = 1999
# Of the standard error: a draw that varies less has missed the few units that make it, and says nothing of the mean.
ALIKE = 0.02
# Of nats, shares and logarithms: an error below it is float32's own, and the units are alike.
ROUNDING = 1e-7


class Interval(NamedTuple):
    """A mean of `units` values with its 95% interval; None where the data cannot give one. `method` says how it was
    made: `t`, `bootstrap-t`, `crossed t`, or `none`."""

    mean: float | None
    low: float | None
    high: float | None
    units: int
    method: str = "none"

    @property
    def state(self) -> str:
        """What to say beside it: "no values", "3 units, too few for an interval", or "95% interval over 16 units"."""
        return state(self.units, self.mean is not None, self.low is not None)


def state(units: int, known: bool = True, interval: bool = True, unit: str = "units") -> str:
    """What a number rests on, in the words of every page: `units` of `unit`; is there a value, and an interval."""
    if units == 0 or not known:
        return "no values"
    singular = unit.replace("units", "unit").replace("documents", "document")
    counted = f"{units:,} {unit}" if units > 1 else f"1 {singular}"
    return f"95% interval over {counted}" if interval else f"{counted}, too few for an interval"


def interval(values: ArrayLike, level: float = LEVEL, fewest: int = DOCUMENTS, seed: int = 0) -> Interval:
    """Mean of one value per unit [n], with a t interval of n - 1 degrees, or a bootstrap-t where the units are skewed.

    For paired differences pass the differences. Fewer than `fewest` units give no interval: two or three values say
    more as points; nor do skewed units of which all but a few are alike. Errors: BadSetting for values that are not
    finite, a level outside 0 to 1.
    """
    values = _vector(values)
    return ratio_interval(values, np.ones_like(values), level, fewest, seed)


def ratio_interval(
    above: ArrayLike, below: ArrayLike, level: float = LEVEL, fewest: int = DOCUMENTS, seed: int = 0
) -> Interval:
    """sum(above) / sum(below) of paired values, one per unit [n]: losses and token counts, or parts of a whole.

    With equal values below it is the mean of `above`, with its t interval; else a bootstrap-t, whose standard error is
    that of the linearised ratio. Errors: as `interval`, and for unequal lengths.
    """
    above, below = _vector(above), _vector(below)
    if len(above) != len(below):
        raise BadSetting(f"A ratio needs paired values, and got {len(above)} and {len(below)}.")
    if not 0 < level < 1:
        raise BadSetting(f"The level of an interval is {level:g} and must lie between 0 and 1.")
    units = len(above)
    if units == 0 or below.sum() == 0:
        return Interval(None, None, None, units)
    mean, error = float(above.sum() / below.sum()), float(_error(above, below))
    if units < max(2, fewest):
        return Interval(mean, None, None, units)
    even, skewed = bool((below == below[0]).all()), False
    if even and units >= BLOCKS and np.ptp(above) > 1e-12 * np.abs(above).max():
        # Half a second to load, which few readings need.
        from scipy import stats

        skewed = bool(stats.skewtest(above).pvalue < SKEWED)
    if even and not skewed:
        half = float(special.stdtrit(units - 1, (1 + level) / 2)) * error
        return Interval(mean, mean - half, mean + half, units, "t")
    quantiles = _studentised(above, below, level, seed)
    if quantiles is None:
        return Interval(mean, None, None, units)
    low, high = quantiles
    return Interval(mean, mean - high * error, mean - low * error, units, "bootstrap-t")


def over_units(
    values: ArrayLike, units: ArrayLike, fewest: int = DOCUMENTS, level: float = LEVEL, below: ArrayLike | None = None
) -> tuple[Interval, np.ndarray]:
    """The mean of values [n] with its interval over units [n], which document or block each is of; and the mean of each
    unit, in the order of their numbers. A unit with more values weighs more. With `below` [n] it is sum(values) /
    sum(below), and so in each unit. Errors: as `interval`."""
    values, unit_of = _vector(values), np.unique(np.asarray(units).reshape(-1), return_inverse=True)[1]
    if len(values) != len(unit_of):
        raise BadSetting(f"Every value belongs to a unit, and got {len(values)} values and {len(unit_of)} units.")
    sums = np.bincount(unit_of, values)
    counts = np.bincount(unit_of, None if below is None else _vector(below))
    with np.errstate(divide="ignore", invalid="ignore"):
        return ratio_interval(sums, counts, level, fewest), sums / counts


def jackknife_edges(
    estimate: ArrayLike, without: ArrayLike, fewest: int = DOCUMENTS, level: float = LEVEL
) -> np.ndarray:
    """Edges [N, 2] of the studentised intervals of many estimates [N] at once, from what each would be `without` every
    unit [units, N] (the jackknife's pseudo-values; for a mean that is its t interval). NaN where there are fewer
    than `fewest` units, or nothing is known."""
    estimate, without = np.asarray(estimate, dtype=np.float64), np.asarray(without, dtype=np.float64)
    units = len(without)
    if units < max(2, fewest):
        return np.full((len(estimate), 2), np.nan)
    pseudo = units * estimate - (units - 1) * without
    half = special.stdtrit(units - 1, (1 + level) / 2) * pseudo.std(0, ddof=1) / units**0.5
    return np.stack([estimate - half, estimate + half], -1)


def crossed_interval(values: ArrayLike, level: float = LEVEL, fewest: int = DOCUMENTS) -> Interval:
    """Mean of values [seeds, documents]: what is trained varies with its seed, and texts differ; both enter.

    The variance of the mean is that of the seeds' means by seeds plus that of the documents' means by documents
    (crossed random effects; a little too wide, never too narrow), its degrees of freedom are Satterthwaite's. Fewer
    than 3 seeds or `fewest` documents give no interval. `units` counts documents.
    """
    table = np.atleast_2d(np.asarray(values, dtype=np.float64))
    _vector(table)
    seeds, documents = table.shape
    mean = float(table.mean())
    if seeds < SEEDS or documents < fewest:
        return Interval(mean, None, None, documents)
    parts = [(table.mean(1).var(ddof=1) / seeds, seeds - 1), (table.mean(0).var(ddof=1) / documents, documents - 1)]
    variance = sum(part for part, _ in parts)
    if variance == 0:
        return Interval(mean, mean, mean, documents, "crossed t")
    degrees = variance**2 / sum(part**2 / df for part, df in parts)
    half = float(special.stdtrit(degrees, (1 + level) / 2) * variance**0.5)
    return Interval(mean, mean - half, mean + half, documents, "crossed t")


def over_seeds(
    values: ArrayLike, units: ArrayLike, fewest: int = DOCUMENTS, level: float = LEVEL
) -> tuple[Interval, np.ndarray]:
    """The mean of values [seeds, n] of what was trained that often, with its interval, and the mean of each unit [n].

    From 3 seeds on the interval is `crossed_interval`'s over seeds and units, where a unit with more values weighs
    more. With fewer it is that of `over_units`, of the mean over seeds: it says nothing of another training. Errors:
    as `interval`.
    """
    table = np.atleast_2d(np.asarray(values, dtype=np.float64))
    over_texts, points = over_units(table.mean(0), units, fewest, level)
    if len(table) < SEEDS:
        return over_texts, points
    unit_of = np.unique(np.asarray(units).reshape(-1), return_inverse=True)[1]
    counts = np.bincount(unit_of)
    sums = np.stack([np.bincount(unit_of, row) for row in table])  # [seeds, units]
    mean = over_texts.mean or 0.0
    # Linearised around the mean of all, so that the mean over units is that of each seed.
    linear = mean + (sums - mean * counts) / counts.mean()
    return crossed_interval(linear, level, fewest), points


def holm(p_values: ArrayLike) -> np.ndarray:
    """Holm's adjusted p-values of one family of comparisons [m], in the order given."""
    p = _vector(p_values)
    order = np.argsort(p)
    adjusted = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    result = np.empty_like(p)
    result[order] = np.minimum(adjusted, 1.0)
    return result


def p_of(effect: Interval) -> float | None:
    """Two-sided p-value of a mean of 0 that goes with a 95% interval: 0.05 where an edge is 0. It is taken from the
    edge nearer to 0, with n - 1 degrees, and with 2 where trainings enter, the fewest they can have, so that it is
    rather too large than too small. None without an interval."""
    mean, low, high = effect.mean, effect.low, effect.high
    if mean is None or low is None or high is None:
        return None
    degrees = effect.units - 1
    if effect.method == "crossed t":
        degrees = SEEDS - 1
    half = mean - low if mean > 0 else high - mean
    if half <= 0:
        return float(mean == 0)
    return float(2 * special.stdtr(degrees, -abs(mean) / half * special.stdtrit(degrees, (1 + LEVEL) / 2)))


def p_value(values: ArrayLike) -> float | None:
    """Two-sided p-value of the t test that the mean of one value per unit is 0; None with fewer than two units."""
    values = _vector(values)
    if len(values) < 2:
        return None
    error = _error(values, np.ones_like(values))
    if error == 0:
        return 1.0 if values.mean() == 0 else 0.0
    return float(2 * special.stdtr(len(values) - 1, -abs(values.mean()) / error))


def _error(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Standard error of sum(above) / sum(below) along the last axis."""
    units = above.shape[-1]
    if units == 1:
        return np.zeros(above.shape[:-1])
    ratio = above.sum(-1, keepdims=True) / below.sum(-1, keepdims=True)
    residual = above - ratio * below
    return np.sqrt((residual**2).sum(-1) / (units - 1) / units) / np.abs(below.mean(-1))


def _studentised(above: np.ndarray, below: np.ndarray, level: float, seed: int) -> tuple[float, float] | None:
    """The quantiles of (resampled ratio - ratio) / its own standard error. None where so few units differ that draws
    without them, whose error is 0 or rounding, would be the quantiles."""
    units, mean, error = len(above), above.sum() / below.sum(), _error(above, below)
    if error < ROUNDING:
        return 0.0, 0.0
    rows = np.random.default_rng(seed).integers(0, units, (DRAWS, units))
    tops, bottoms = above[rows], below[rows]
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = _error(tops, bottoms)
        drawn = (tops.sum(1) / bottoms.sum(1) - mean) / errors
    varied = np.isfinite(drawn) & (errors > ALIKE * error)
    if np.mean(~varied) > (1 - level) / 2:
        return None
    low, high = np.quantile(drawn[varied], [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _vector(values: Any) -> np.ndarray:
    values = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values, dtype=np.float64).reshape(-1)
    if not np.isfinite(values).all():
        raise BadSetting(
            f"{int((~np.isfinite(values)).sum())} of {len(values)} values are not finite numbers; no mean exists."
        )
    return values
