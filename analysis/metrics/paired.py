"""How much worse one way to read a text predicts it than another: paired token by token, with an interval."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..errors import BadSetting
from .intervals import BLOCKS, DOCUMENTS, LEVEL, over_units, p_value, state

# Windows in a row that form a unit of one text.
UNIT = 8
# Tokens in a row that form a unit where there are too few windows.
STRETCH = 64
# Units of windows below which one text gives too few of them.
ENOUGH = 8


@dataclass(frozen=True)
class Change:
    """Perplexity by that of the baseline, minus 1 (0.02 is 2% worse), with its studentised 95% interval; None with
    too few units, and then `points` are those of the units. `upper` is the limit of "no worse than": one-sided, 95%;
    `lower` that of "no better than".
    `units` of `unit`, which says in words what they are; `p` of the t test that nothing changes."""

    change: float
    low: float | None
    high: float | None
    upper: float | None
    units: int
    unit: str
    points: tuple[float, ...] = ()
    p: float | None = None
    lower: float | None = None

    @property
    def state(self) -> str:
        """What it rests on, in words."""
        return state(self.units, True, self.low is not None, self.unit)


def perplexity_change(
    losses: ArrayLike, baseline: ArrayLike, documents: ArrayLike | None = None, stretch: int = STRETCH
) -> Change:
    """The change of perplexity from `baseline` to `losses`, both nats per token [windows, positions].

    Tokens are paired, so what makes a text hard cancels. With `documents` [windows], which text each window is of,
    units are documents, and fewer than five have no interval. Without, it is one text, and units are its blocks: 8
    consecutive windows, or where there are fewer than eight such blocks `stretch` consecutive tokens of a window. That
    says how even the change is inside this text, not what another text would give; fewer than 8 have no interval.
    """
    losses, baseline = np.asarray(losses, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if losses.ndim != 2 or losses.shape != baseline.shape or losses.size == 0:
        raise BadSetting(
            f"Paired losses are two tables of windows and positions, and got {losses.shape} and {baseline.shape}."
        )
    apart = losses - baseline
    values, unit_of, fewest, unit = _units(apart, documents, stretch)
    difference, points = over_units(values, unit_of, fewest)
    one_sided = over_units(values, unit_of, fewest, 2 * LEVEL - 1)[0]
    edges = difference.low, difference.high, one_sided.low, one_sided.high
    low, high, lower, upper = (None if edge is None else math.expm1(edge) for edge in edges)
    p = None if difference.low is None else p_value(points)
    few = () if difference.low is not None else tuple(math.expm1(point) for point in points)
    return Change(math.expm1(float(apart.mean())), low, high, upper, difference.units, unit, few, p, lower)


def perplexity_of(losses: ArrayLike, documents: ArrayLike | None = None, stretch: int = STRETCH) -> Change:
    """The perplexity itself of losses [windows, positions] in nats: `change` with its interval, units as above."""
    from_one = perplexity_change(losses, np.zeros(np.shape(losses)), documents, stretch)
    ends = {name: getattr(from_one, name) for name in ("low", "high", "lower", "upper")}
    moved: dict[str, Any] = {name: None if end is None else 1 + end for name, end in ends.items()}
    points = tuple(1 + point for point in from_one.points)
    return replace(from_one, change=1 + from_one.change, points=points, p=None, **moved)


def _units(apart: np.ndarray, documents: ArrayLike | None, stretch: int) -> tuple[np.ndarray, np.ndarray, int, str]:
    """Values, the unit each is of, how many units give an interval, and what they are."""
    windows, positions = apart.shape
    if documents is not None:
        return apart.mean(1), np.asarray(documents), DOCUMENTS, "documents"
    if windows > UNIT * (ENOUGH - 1):
        return apart.mean(1), np.arange(windows) // UNIT, BLOCKS, f"blocks of {UNIT} windows in this text"
    stretch = min(stretch, positions)
    blocks = np.arange(windows)[:, None] * -(-positions // stretch) + np.arange(positions) // stretch
    return apart.ravel(), blocks.ravel(), BLOCKS, f"blocks of {stretch} tokens in this text"
