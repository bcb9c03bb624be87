"""How much worse one way to read a text predicts it than another: paired token by token, with an interval."""

import math
from dataclasses import dataclass

import numpy as np

from analysis.errors import BadSetting
from analysis.metrics.intervals import UNIT, bootstrap_mean, bootstrap_ratio

STRETCH = 64  # tokens in a row that form a unit where there are too few windows
ENOUGH = 8  # units of windows below which a bootstrap over them says little


@dataclass(frozen=True)
class Change:
    """Perplexity by that of the baseline, minus 1 (0.02 is 2 % worse), with its 95 % bootstrap interval (None with
    fewer than two units). `units` of `unit`, which says in words what was drawn."""

    change: float
    low: float | None
    high: float | None
    units: int
    unit: str


def perplexity_change(losses, baseline, stretch: int = STRETCH, seed: int = 0) -> Change:
    """The change of perplexity from `baseline` to `losses`, both nats per token [windows, positions].

    Tokens are paired, so what makes a text hard cancels. Units are 8 consecutive windows; with fewer than eight of
    them `stretch` consecutive tokens of a window, which says how even the change is inside this text, not what another
    text would give.
    """
    losses, baseline = np.asarray(losses, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if losses.ndim != 2 or losses.shape != baseline.shape or losses.size == 0:
        raise BadSetting(
            f"Paired losses are two tables of windows and positions, and got {losses.shape} and {baseline.shape}."
        )
    apart = losses - baseline
    if len(apart) > UNIT * (ENOUGH - 1):
        found, unit = bootstrap_mean(apart.mean(1), unit=UNIT, seed=seed), f"{UNIT} windows"
    else:
        stretch = min(stretch, apart.shape[1])
        starts = np.arange(0, apart.shape[1], stretch)
        sums = np.add.reduceat(apart, starts, axis=1).ravel()
        counts = np.tile(np.diff([*starts, apart.shape[1]]), len(apart))
        found, unit = bootstrap_ratio(sums, counts, unit=1, seed=seed), f"{stretch} tokens in a row"
    mean = float(apart.mean())
    low, high = (None if edge is None else math.expm1(edge) for edge in (found.low, found.high))
    return Change(math.expm1(mean), low, high, found.units, unit)
