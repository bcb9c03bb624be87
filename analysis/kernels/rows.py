"""Statistics of attention rows, one head and block of queries at a time: all sums while a row is in the cache.

Every number is taken from the unnormalised weights e^(s - max) of a row and divided at the end, so that the same buffer
then multiplies the values. Where a number is about several keys next to each other it is one sum over a slice.
"""

from typing import Any

import numpy as np

from .jit import jit
from .rank import BINS, PEAKS, SLACK, histogram, rank_of

# Sums may be reordered; infinities keep their meaning.
FAST = {"reassoc", "contract", "nsz", "arcp"}
ENTROPY, LARGEST, RANK, FIRST, WINDOW, DISTANCE, PREVIOUS, INDUCTION, FAR_PEAKS = range(9)
COLUMNS = 9
# E to this is the smallest normal float32, near enough.
SMALLEST = np.float32(-87.0)
LOG2E, HIGH, LOW = np.float32(1.44269504), np.float32(0.693359375), np.float32(-2.12194440e-4)
POWERS = tuple(np.float32(c) for c in (1.98756915e-4, 1.39819995e-3, 8.33345191e-3, 4.16657959e-2, 0.16666665, 0.5))


@jit()
def measure_rows(
    scores: np.ndarray,
    start: int,
    first: int,
    real: np.ndarray,
    earlier: np.ndarray,
    mass: Any,
    window: int,
    without_first: bool,
    more: bool,
    measured: np.ndarray,
    totals: np.ndarray,
    distance: np.ndarray,
) -> None:
    """One head's queries start..start + n of a text, over scaled logits [n, m] of its first m keys.

    `scores` float32 is overwritten by the weights e^(s - max), the future by zeros; -inf there marks other keys that
    are not visible. `first`: the first real token; `real` bool [T]; `earlier` int [T]: where the token last stood
    before, or -1. `without_first` leaves the first token out and renormalises, in all but FIRST. Filled: `measured`
    [n, COLUMNS] float64, NaN where a number is not defined; `totals` [n] float32, the sum of each row's weights; with
    `more`, added to: `distance` [bins] (bin 0: the token itself, b: 2^(b-1) to 2^b tokens back).
    """
    rows, keys = scores.shape
    sums, counts = np.zeros(BINS), np.zeros(BINS, np.int64)
    spare, strongest = np.empty(keys, np.float32), np.empty(PEAKS, np.float32)
    shared_row = np.empty(keys if without_first else 0, np.float32)
    for r in range(rows):
        query = start + r
        stop = min(keys, query + 1)
        scores[r, stop:] = 0.0
        row = scores[r, :stop]
        begin, weights = 0, row
        if without_first:
            begin = min(first + 1, stop)
            weights = shared_row[:stop]
            weights[:] = row
        near, visible, far = max(first + 1, query - window + 1), 0, 0
        if more:
            visible, far = _visible(row[begin:]), _visible(row[first + 1 : near])
        total, turned = _exponential(row, 0)
        totals[r] = total
        if not real[query] or total <= 0.0:
            measured[r] = np.nan
            continue
        sink = row[first] / total
        if without_first:
            total, turned = _exponential(weights, begin)
            if total <= 0.0:
                measured[r] = np.nan
                measured[r, FIRST] = sink
                continue
        row_of_results = measured[r]
        share = 1.0 / total
        row_of_results[ENTROPY] = np.log(total) - turned * share
        row_of_results[LARGEST] = share
        row_of_results[RANK] = rank_of(weights, SLACK * mass * histogram(weights, sums, counts), sums, counts, spare)[0]
        row_of_results[FIRST] = sink
        row_of_results[WINDOW] = _sum(weights[max(0, query - window + 1) :]) * share
        row_of_results[DISTANCE] = _mean_distance(weights, query) * share
        if more:
            row_of_results[PREVIOUS] = weights[query - 1] * share if query - begin > 0 and real[query - 1] else np.nan
            row_of_results[INDUCTION] = _after_itself(weights, query, begin, earlier) * share
            peaks = _strongest(weights[first + 1 : near], strongest) * share
            row_of_results[FAR_PEAKS] = peaks - min(PEAKS, far) / visible if far > 0 else np.nan
            _add_by_distance(weights, query, share, distance)


@jit()
def sharpness(scores: np.ndarray, start: int, entropy: np.ndarray, largest: np.ndarray) -> None:
    """Entropy in nats and largest probability of one head's queries start..start + n: what a temperature changes.

    `scores` float32 [n, m] as in `measure_rows`, overwritten; filled: `entropy` and `largest` [n], NaN where all is
    hidden.
    """
    for r in range(len(scores)):
        row = scores[r, : min(scores.shape[1], start + r + 1)]
        total, turned = _exponential(row, 0)
        entropy[r] = np.log(total) - turned / total if total > 0.0 else np.nan
        largest[r] = 1.0 / total if total > 0.0 else np.nan


@jit(fastmath=FAST)
def _exponential(row: np.ndarray, begin: int) -> tuple[Any, Any]:
    """In place e^(s - max) of a row of logits from key `begin` on, zeros before it -> (sum, sum of e^d d)."""
    largest = np.float32(-np.inf)
    for j in range(begin, len(row)):
        largest = max(largest, row[j])
    row[:begin] = 0.0
    total, turned = np.float32(0.0), np.float32(0.0)
    if largest == -np.inf:
        row[:] = 0.0
        return total, turned
    for j in range(begin, len(row)):
        below = max(row[j] - largest, SMALLEST)
        k = np.floor(below * LOG2E + np.float32(0.5))
        x = (below - k * HIGH) - k * LOW  # below - k ln 2, exactly
        p = POWERS[0] * x + POWERS[1]
        p = p * x + POWERS[2]
        p = p * x + POWERS[3]
        p = p * x + POWERS[4]
        p = p * x + POWERS[5]
        p = p * x * x + x + np.float32(1.0)
        weight = p * np.int32((np.int32(k) + np.int32(127)) << np.int32(23)).view(np.float32)
        weight = weight if below > SMALLEST else np.float32(0.0)
        row[j] = weight
        total += weight
        turned += weight * below
    return total, turned


@jit(fastmath=FAST)
def _sum(row: np.ndarray) -> Any:
    total = np.float32(0.0)
    for j in range(len(row)):
        total += row[j]
    return total


@jit(fastmath=FAST)
def _visible(row: np.ndarray) -> Any:
    total = 0
    for j in range(len(row)):
        total += row[j] > -np.inf
    return total


@jit()
def _strongest(row: np.ndarray, strongest: np.ndarray) -> Any:
    """Sum of the largest weights of a row, as many as `strongest` [PEAKS] holds."""
    strongest[:] = 0.0
    for j in range(len(row)):
        slot = len(strongest) - 1
        if row[j] <= strongest[slot]:
            continue
        while slot > 0 and strongest[slot - 1] < row[j]:
            strongest[slot] = strongest[slot - 1]
            slot -= 1
        strongest[slot] = row[j]
    return _sum(strongest)


@jit(fastmath=FAST)
def _mean_distance(row: np.ndarray, query: int) -> Any:
    total = np.float32(0.0)
    for j in range(len(row)):
        total += row[j] * np.float32(query - j)
    return total


@jit()
def _after_itself(row: np.ndarray, query: int, begin: int, earlier: np.ndarray) -> Any:
    """Sum over the keys that follow an earlier copy of the query's token; NaN where there is none."""
    total, some, earlier_place = 0.0, False, earlier[query]
    while earlier_place >= begin - 1 and earlier_place >= 0:
        if earlier_place + 1 < query and earlier_place + 1 >= begin:
            total += row[earlier_place + 1]
            some = True
        earlier_place = earlier[earlier_place]
    return total if some else np.nan


@jit()
def _add_by_distance(row: np.ndarray, query: int, share: Any, distance: np.ndarray) -> None:
    distance[0] += row[query] * share if query < len(row) else 0.0
    low, b = 1, 1
    while low <= query:
        stop, begin = query - low + 1, max(0, query - 2 * low + 1)
        distance[b] += _sum(row[begin:stop]) * share
        low, b = 2 * low, b + 1
