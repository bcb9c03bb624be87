"""Exact selection in a row by a histogram of the top bits of its numbers, compiled: no row is sorted.

A positive float32 grows with its bits read as an integer, so its top twelve bits are a logarithmic bin of an eighth of
an octave. Whole bins are taken from the top, the target's is cut finer by the next eight bits, the rest sorted.
"""

from typing import Any

import numpy as np
from numba import njit

# Eight for each power of two from 2^-32 up, one for 1, and what is smaller lies in the lowest.
BINS = 257
# Of the top 12 bits of a float32.
LOWEST = (127 - 32) * 8
# The smallest number above 0.
TINY = np.float32(1e-45)
# A bin with more numbers is cut into as many finer ones.
FINE, MANY = 256, 48


@njit(nogil=True, cache=True)
def ranks_of(rows: np.ndarray, target: Any, ranks: np.ndarray, smallest: np.ndarray) -> None:
    """Fill `ranks` int64 [n] with the fewest numbers of each row [n, T] float32 from 0 to 1 that reach `target`, and
    `smallest` float32 [n] with the least of them."""
    sums, counts = np.zeros(BINS), np.zeros(BINS, np.int64)
    spare = np.empty(rows.shape[1], np.float32)
    for r in range(len(rows)):
        histogram(rows[r], sums, counts)
        ranks[r], smallest[r] = rank_of(rows[r], target, sums, counts, spare)


@njit(nogil=True, cache=True)
def histogram(row: np.ndarray, sums: np.ndarray, counts: np.ndarray) -> Any:
    """Fill `sums` float64 and `counts` int64 [BINS] with the numbers of a float32 row, by size; returns their sum."""
    bits = row.view(np.int32)
    sums[:] = 0.0
    counts[:] = 0
    for j in range(len(row)):
        bin_index = min(max(0, (bits[j] >> 20) - LOWEST), BINS - 1)
        sums[bin_index] += row[j]
        counts[bin_index] += 1
    return sums.sum()


@njit(nogil=True, cache=True)
def rank_of(row: np.ndarray, target: Any, sums: np.ndarray, counts: np.ndarray, spare: np.ndarray) -> tuple[int, Any]:
    """(the fewest numbers of `row` whose sum reaches `target`, the least of them), given its histogram, used up;
    `spare` float32, as long."""
    bits = row.view(np.int32)
    reached, count, bin_index = _pass_bins(target, 0.0, 0, BINS - 1, sums, counts)
    inside = 0
    for j in range(len(row)):
        spare[inside] = row[j]
        inside += min(max(0, (bits[j] >> 20) - LOWEST), BINS - 1) == bin_index
        if inside == len(spare):
            break
    # a full bin is cut by the next eight bits
    if inside > MANY and bin_index > 0:
        sums[:FINE] = 0.0
        counts[:FINE] = 0
        bits = spare.view(np.int32)
        for j in range(inside):
            bin_index = (bits[j] >> 12) & (FINE - 1)
            sums[bin_index] += spare[j]
            counts[bin_index] += 1
        reached, count, bin_index = _pass_bins(target, reached, count, FINE - 1, sums, counts)
        before, inside = inside, 0
        for j in range(before):
            value = spare[j]
            fits = ((bits[j] >> 12) & (FINE - 1)) == bin_index
            spare[inside] = value
            inside += fits
    best, smallest = spare[:inside], TINY
    best.sort()
    for j in range(inside - 1, -1, -1):
        if reached >= target or best[j] <= 0:
            break
        reached += best[j]
        smallest = best[j]
        count += 1
    return count, smallest


@njit(nogil=True, cache=True)
def _pass_bins(
    target: Any, reached: Any, count: int, bin_index: int, sums: np.ndarray, counts: np.ndarray
) -> tuple[Any, int, int]:
    """Take whole bins from the top while the target lies beyond them -> (sum, count, the bin it lies in)."""
    while bin_index > 0 and reached + sums[bin_index] < target:
        reached += sums[bin_index]
        count += counts[bin_index]
        bin_index -= 1
    return reached, count, bin_index
