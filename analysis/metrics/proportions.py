"""Shares of right answers: intervals that hold for few items and for scores of 0 and 1, where a bootstrap has none."""

import math

import numpy as np
from numpy.typing import ArrayLike

from ..errors import BadSetting
from .intervals import Interval

# Two-sided 95%.
Z = 1.959963984540054


def share(right: ArrayLike) -> Interval:
    """Mean of scores [n] between 0 and 1 with its 95% Wilson interval (Wilson 1927). None without any. Errors:
    BadSetting for a score outside."""
    right = _scores(right)
    n = len(right)
    if n == 0:
        return Interval(None, None, None, 0)
    mean, z_squared = float(right.mean()), Z * Z / n
    middle = (mean + z_squared / 2) / (1 + z_squared)
    half = Z * math.sqrt(mean * (1 - mean) / n + z_squared / (4 * n)) / (1 + z_squared)
    return Interval(mean, max(0.0, middle - half), min(1.0, middle + half), n)


def share_difference(right: ArrayLike, baseline: ArrayLike) -> Interval:
    """Mean of scores [n] minus a baseline's on the same items, with the 95% interval of Bonett and Price (2012): one
    item is added to each kind of disagreement, so that agreement on few items is not taken for certainty."""
    right, baseline = _scores(right), _scores(baseline)
    if right.shape != baseline.shape:
        raise BadSetting(f"A paired difference needs the same items, and got {len(right)} and {len(baseline)}.")
    n = len(right)
    if n == 0:
        return Interval(None, None, None, 0)
    apart = right - baseline
    up, down = (float(np.clip(sign * apart, 0, None).sum() + 1) / (n + 2) for sign in (1, -1))
    half = Z * math.sqrt((up + down - (up - down) ** 2) / (n + 2))
    return Interval(float(apart.mean()), max(-1.0, up - down - half), min(1.0, up - down + half), n)


def _scores(values: ArrayLike) -> np.ndarray:
    values = np.asarray(values, dtype=np.float64).reshape(-1)
    if not ((values >= 0) & (values <= 1)).all():
        raise BadSetting(f"Scores lie between 0 and 1, and {values.min():g} to {values.max():g} were given.")
    return values
