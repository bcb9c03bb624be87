"""Budgets of Calibrated Sparse Attention: how many keys each (layer, head) may read, and what share of a dense read
that is. Pure arithmetic on tables [L, H] of whole numbers."""

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..errors import BadSetting

# Keys that every head gets before anything is shared out (CSA, step 2).
FLOOR = 2
MOST = 1 << 30
# The values that a change by hand may have.
RANGES = {"set": (1, MOST), "scale": (0, 1000), "pin": (1, 1)}


def allocate_budget(ranks: ArrayLike, budget: int, floor: int = FLOOR, floored: str = "first") -> np.ndarray:
    """Share `budget` keys out over heads in proportion to their ranks: [L, H] -> int64 [L, H].

    `floored` first: each head gets `floor`, and the rest is apportioned, so the sum is exactly `budget`; last: all keys
    are apportioned, and heads below the floor raised to it, so the sum may be larger. By largest remainder, ties to the
    lower flat index; heads whose ranks are all 0 get equal parts. CSA, step 2. Errors: BadSetting.
    """
    if floored == "last":
        return np.maximum(allocate_budget(ranks, budget, 0), floor)
    ranks = np.asarray(ranks, dtype=np.float64)
    if ranks.ndim != 2 or ranks.size == 0 or not np.isfinite(ranks).all() or (ranks < 0).any():
        raise BadSetting(
            f"Ranks are a table of layers and heads with numbers from 0 up, and one of shape {ranks.shape} "
            f"{'with other values ' if ranks.ndim == 2 and ranks.size else ''}was given."
        )
    for name, value in (("budget", budget), ("floor", floor)):
        if isinstance(value, bool) or not _is_number(value, 0, MOST) or int(value) != value:
            raise BadSetting(f"The {name} is {value!r} and must be a whole number from 0 to {MOST:,}.")
    budget, floor, cells = int(budget), int(floor), ranks.size
    if budget < floor * cells:
        raise BadSetting(
            f"A budget of {budget:,} keys is below the floor: {cells:,} heads need at least {floor} each, "
            f"{floor * cells:,} in all."
        )
    # Exact fractions: in floating point, remainders that are equal by definition would be ordered by rounding.
    parts = [Fraction(rank) for rank in ranks.ravel().tolist()]
    if not any(parts):
        parts = [Fraction(1)] * cells
    # Denominators of floats are powers of two, so the largest is a multiple of the others.
    common = max(part.denominator for part in parts)
    weights = [int(part * common) for part in parts]
    spare, total = budget - floor * cells, sum(weights)
    # Keys and remainder of each head.
    quotas = [divmod(spare * weight, total) for weight in weights]
    left = spare - sum(keys for keys, _ in quotas)
    first = sorted(range(cells), key=lambda cell: (-quotas[cell][1], cell))[:left]
    shares = np.array([floor + keys for keys, _ in quotas], dtype=np.int64)
    shares[first] += 1
    return shares.reshape(ranks.shape)


def _capped(budgets: ArrayLike, cap: int | None, length: int) -> np.ndarray:
    """Keys [L, H] that a head reads at most in a text of `length` tokens."""
    return np.minimum(np.asarray(budgets, dtype=np.int64), length if cap is None else min(cap, length))


def read_pairs(budgets: ArrayLike, cap: int | None, length: int) -> int:
    """Query-key pairs that all heads read in a text of `length` tokens: sum of min(budget, cap, i + 1); no ties."""
    keys = _capped(budgets, cap, length)
    # The first `keys` queries see fewer keys than that: 1, 2, ... of them.
    return int((keys * (keys + 1) // 2 + keys * (length - keys)).sum())


def reads(budgets: ArrayLike, cap: int | None, length: int, kv_heads: int | None = None) -> dict[str, float]:
    """What budgets [L, H] under a cap read of a text of `length` tokens.

    Per query head: `attended` keys of a query, `reads_causal` as a share of the causal pairs, length (length + 1) / 2
    for each head, `reads_full` of length^2. Per key-value head, of which a layer has `kv_heads` (default: one for each
    query head), where a key counts once for the query heads that share it: `reads_kv_least` of the causal pairs if they
    choose alike, `reads_kv_most` if they never do. `kv_read`: key and value vectors fetched at least, halved; every key
    is scored, so it is 1/2 or more. Without ties.
    """
    keys = _capped(budgets, cap, length)
    layers, heads = keys.shape
    kv_heads = kv_heads or heads
    shared = keys.reshape(layers, kv_heads, -1)  # [L, G, H / G]
    pairs, causal = read_pairs(keys, None, length), length * (length + 1) // 2
    least, most = (
        read_pairs(ends, None, length) / (layers * kv_heads * causal) for ends in (shared.max(-1), shared.sum(-1))
    )
    return {
        "attended": pairs / (keys.size * length),
        "reads_causal": pairs / (keys.size * causal),
        "reads_full": pairs / (keys.size * length * length),
        "kv_read": (1 + least) / 2,
        "reads_kv_least": least,
        "reads_kv_most": most,
    }


def budget_for_reads(ranks: ArrayLike, share: float, length: int, floor: int = FLOOR) -> int:
    """The smallest total whose allocation reads at least `share` of the causal pairs of `length` tokens.

    Errors: BadSetting for a share outside (0, 1].
    """
    ranks = np.asarray(ranks, dtype=np.float64)
    if not 0 < share <= 1:
        raise BadSetting(f"The share of reads is {share!r} and must be above 0 and at most 1.")
    wanted = share * ranks.size * (length * (length + 1) // 2)

    def enough(total: int) -> bool:
        return read_pairs(allocate_budget(ranks, total, floor), None, length) >= wanted

    low, high = floor * ranks.size, max(2, floor) * ranks.size
    while not enough(high) and high < MOST // 2:
        low, high = high, 2 * high
    while low < high:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle + 1
    return low


def edited(
    budgets: ArrayLike, ranks: ArrayLike, edits: list[dict], keep_total: bool, floor: int = FLOOR
) -> tuple[np.ndarray, np.ndarray]:
    """Budgets [L, H] after hand-made changes in their order, and bool [L, H]: which cells they fixed.

    An edit is {"set": keys}, {"scale": factor} or {"pin": true} together with what it changes: "layer" (a row), "head"
    (a column), both (a cell) or "cells" (flat indices layer * H + head); none of them is everything. A cell stays at
    1 key at least. `keep_total`: after every edit the cells that none has named yet share what is left of the total,
    in proportion to their ranks and with `floor` keys each, so that a pin holds what was on view. Errors: BadSetting.
    """
    budgets, ranks = np.array(budgets, dtype=np.int64), np.asarray(ranks, dtype=np.float64)
    total, fixed = int(budgets.sum()), np.zeros(budgets.shape, dtype=bool)
    for edit in edits:
        change, value, chosen = _parsed(edit, budgets.shape)
        if change == "set":
            budgets[chosen] = value
        elif change == "scale":
            budgets[chosen] = np.clip(np.floor(budgets[chosen] * value + 0.5), 1, MOST).astype(np.int64)
        fixed |= chosen
        if keep_total and not fixed.all():
            used, free = int(budgets[fixed].sum()), int((~fixed).sum())
            if total - used < floor * free:
                raise BadSetting(
                    f"The edited heads take {used:,} of {total:,} keys and the other {free:,} need at least {floor} "
                    "each: edit fewer, or let the total change."
                )
            budgets[~fixed] = allocate_budget(ranks[~fixed][None], total - used, floor)[0]
    return budgets, fixed


def _parsed(edit: Any, shape: tuple[int, int]) -> tuple[str, float, np.ndarray]:
    """(set, scale or pin; its value; which cells, bool [L, H]) of an edit as a page or a file gives it."""
    layer, head = np.indices(shape)
    index = {"layer": layer, "head": head, "cells": layer * shape[1] + head}
    changes = [name for name in RANGES if isinstance(edit, dict) and name in edit]
    if len(changes) != 1 or set(edit) - {*RANGES, *index}:
        raise BadSetting(f"{str(edit)[:60]!r} is no edit: give one of {', '.join(RANGES)} with a layer, head or cells.")
    (change,) = changes
    value = edit[change]
    if not _is_number(value, *RANGES[change]) or (change == "set" and (value is True or int(value) != value)):
        raise BadSetting(
            f"An edit cannot {change} {str(value)[:20]!r}: set takes keys from 1, scale 0 to 1000, pin true."
        )
    chosen = np.ones(shape, dtype=bool)
    for axis, places in index.items():
        if edit.get(axis) is not None:
            wanted = edit[axis] if isinstance(edit[axis], list) else [edit[axis]]
            if strange := [place for place in wanted if type(place) is not int or not 0 <= place <= places.max()]:
                name = axis.removesuffix("s")
                raise BadSetting(f"There is no {name} {str(strange[0])[:20]}: there are 0 to {places.max()}.")
            chosen &= np.isin(places, wanted)
    return change, value, chosen


def _is_number(value: Any, low: float, high: float) -> bool:
    return isinstance(value, int | float | np.number) and bool(low <= value <= high)


def keys_left(budgets: ArrayLike, cap: int | None, length: int, kv_heads: int) -> np.ndarray:
    """The most keys (each with its value) that a KV cache of `length` holds of each key-value head, int64 [L, G], when
    every head keeps min(budget, cap) for good. Query heads that share keys may keep different ones, so theirs add up.
    """
    keys = _capped(budgets, cap, length)
    return np.minimum(keys.reshape(len(keys), kv_heads, -1).sum(2), length)
