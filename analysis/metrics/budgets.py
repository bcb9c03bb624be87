"""Budgets of Calibrated Sparse Attention: how many keys each (layer, head) may read, and what share of a dense read
that is. Pure arithmetic on tables [L, H] of whole numbers.
"""

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..errors import BadSetting

FLOOR = 2  # keys that every head gets before anything is shared out (CSA, step 2)
EDITS = ("set", "scale", "pin")
MOST = 1 << 30


def allocate_budget(ranks: ArrayLike, budget: int, floor: int = FLOOR) -> np.ndarray:
    """Share `budget` keys out over heads in proportion to their ranks: [L, H] -> int64 [L, H], sum exactly `budget`.

    Each head gets `floor` first; the rest is apportioned by largest remainder, ties to the lower flat index, in exact
    arithmetic. Heads whose ranks are all 0 get equal parts. CSA, step 2 (definitions 2.3).
    Errors: BadSetting for ranks that are no table of numbers from 0 up, and for a budget below `floor` for each head.
    """
    ranks = np.asarray(ranks, dtype=np.float64)
    if ranks.ndim != 2 or ranks.size == 0 or not np.isfinite(ranks).all() or (ranks < 0).any():
        raise BadSetting(
            f"Ranks are a table of layers and heads with numbers from 0 up, and one of shape {ranks.shape} "
            f"{'with other values ' if ranks.ndim == 2 and ranks.size else ''}was given."
        )
    for name, value in (("budget", budget), ("floor", floor)):
        if isinstance(value, bool) or int(value) != value or not 0 <= value <= MOST:
            raise BadSetting(f"The {name} is {value!r} and must be a whole number from 0 to {MOST:,}.")
    budget, floor, cells = int(budget), int(floor), ranks.size
    if budget < floor * cells:
        raise BadSetting(
            f"A budget of {budget:,} keys is below the floor: {cells:,} heads need at least {floor} each, "
            f"{floor * cells:,} in all."
        )
    parts = [Fraction(rank) for rank in ranks.ravel().tolist()]
    if not any(parts):
        parts = [Fraction(1)] * cells
    # Powers of two: the largest holds the others.
    common = max(part.denominator for part in parts)
    weights = [int(part * common) for part in parts]
    spare, total = budget - floor * cells, sum(weights)
    quotas = [divmod(spare * weight, total) for weight in weights]  # (keys, remainder)
    left = spare - sum(keys for keys, _ in quotas)
    first = sorted(range(cells), key=lambda cell: (-quotas[cell][1], cell))[:left]
    shares = np.array([floor + keys for keys, _ in quotas], dtype=np.int64)
    shares[first] += 1
    return shares.reshape(ranks.shape)


def read_pairs(budgets: ArrayLike, cap: int | None, length: int) -> int:
    """Query-key pairs that all heads read in a text of `length` tokens: sum of min(budget, cap, i + 1); no ties."""
    keys = np.minimum(np.asarray(budgets, dtype=np.int64), length if cap is None else min(cap, length)).ravel()
    return int((keys * (keys + 1) // 2 + keys * (length - keys)).sum())


def reads(budgets: ArrayLike, cap: int | None, length: int, kv_heads: int | None = None) -> dict[str, float]:
    """What budgets [L, H] under a cap read of a text of `length` tokens, as a share of dense reads.

    Per query head: `reads_causal` of the pairs a causal model reads, length (length + 1) / 2 for each head;
    `reads_full` of length^2; `attended` keys of a query, the mean over heads and positions. Per key-value head, of
    which a layer has `kv_heads` (default: one for each query head), see `shared_reads`. `kv_read` key and value
    vectors fetched at least, halved, of the causal pairs: every key is scored, so it is 1/2 or more.
    """
    shared = shared_reads(budgets, cap, length, kv_heads or np.asarray(budgets).shape[-1])
    pairs, heads = read_pairs(budgets, cap, length), np.asarray(budgets).size
    causal = heads * (length * (length + 1) // 2)
    return {
        "attended": pairs / (heads * length),
        "reads_causal": pairs / causal,
        "reads_full": pairs / (heads * length * length),
        "kv_read": (1 + shared["reads_kv_least"]) / 2,
        **shared,
    }


def shared_reads(budgets: ArrayLike, cap: int | None, length: int, kv_heads: int) -> dict[str, float]:
    """Between which shares of the causal pairs the reads per key-value head lie, where a key counts once for the query
    heads that share it: `reads_kv_least` if they choose alike, the largest budget then counts; `reads_kv_most` if they
    never do, the sum counts then, up to every key. Without ties, as `read_pairs`."""
    keys = np.minimum(np.asarray(budgets, dtype=np.int64), length if cap is None else min(cap, length))
    keys = keys.reshape(-1, kv_heads, keys.shape[-1] // kv_heads)  # [L, G, H / G]
    causal = keys.shape[0] * kv_heads * (length * (length + 1) // 2)
    ends = {"reads_kv_least": keys.max(-1), "reads_kv_most": keys.sum(-1)}
    return {name: read_pairs(shared, None, length) / causal for name, shared in ends.items()}


def budget_for_reads(ranks: ArrayLike, share: float, length: int, floor: int = FLOOR) -> int:
    """The smallest total whose allocation reads at least `share` of the causal pairs of `length` tokens.

    Errors: BadSetting for a share outside (0, 1].
    """
    ranks = np.asarray(ranks, dtype=np.float64)
    if not 0 < share <= 1:
        raise BadSetting(f"The share of reads is {share!r} and must be above 0 and at most 1.")
    wanted = share * ranks.size * (length * (length + 1) // 2)
    low, high = floor * ranks.size, max(2, floor) * ranks.size
    while read_pairs(allocate_budget(ranks, high, floor), None, length) < wanted and high < MOST // 2:
        low, high = high, 2 * high
    while low < high:
        middle = (low + high) // 2
        if read_pairs(allocate_budget(ranks, middle, floor), None, length) < wanted:
            low = middle + 1
        else:
            high = middle
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
        chosen, do, value = _edit(edit, budgets.shape)
        if do == "set":
            budgets[chosen] = value
        elif do == "scale":
            budgets[chosen] = np.clip(np.floor(budgets[chosen] * value + 0.5), 1, MOST).astype(np.int64)
        fixed |= chosen
        if keep_total and not fixed.all():
            budgets[~fixed] = _left_over(budgets, ranks, fixed, total, floor)
    return budgets, fixed


def _left_over(budgets: np.ndarray, ranks: np.ndarray, fixed: np.ndarray, total: int, floor: int) -> np.ndarray:
    """What the free cells get of the total. Errors: BadSetting when the fixed ones leave less than the floor."""
    used, free = int(budgets[fixed].sum()), int((~fixed).sum())
    if total - used < floor * free:
        raise BadSetting(
            f"The edited heads take {used:,} of {total:,} keys and the other {free:,} need at least {floor} each: "
            "edit fewer, or let the total change."
        )
    return allocate_budget(ranks[~fixed][None], total - used, floor)[0]


def _edit(edit: dict, shape: tuple[int, int]) -> tuple[np.ndarray, str, float]:
    """(bool [L, H] of the cells, what is done, its value) of one edit."""
    named = [name for name in EDITS if isinstance(edit, dict) and name in edit]
    if len(named) != 1 or set(edit) - {*EDITS, "layer", "head", "cells"}:
        raise BadSetting(f"{str(edit)[:60]!r} is no edit: give one of {', '.join(EDITS)} with a layer, head or cells.")
    do, value, chosen = named[0], edit[named[0]], np.ones(shape, dtype=bool)
    numeric = isinstance(value, (int, float)) and not isinstance(value, bool)
    good = {
        "set": numeric and int(value) == value and 1 <= value <= MOST,
        "scale": numeric and 0 <= value <= 1000,
        "pin": value is True,
    }
    if not good[do]:
        raise BadSetting(f"An edit cannot {do} {str(value)[:20]!r}: set takes keys from 1, scale 0 to 1000, pin true.")
    for axis, name in enumerate(("layer", "head")):
        if edit.get(name) is not None:
            _inside(name, edit[name], shape[axis])
            chosen &= (np.arange(shape[axis]) == edit[name]).reshape((-1, 1) if axis == 0 else (1, -1))
    if edit.get("cells") is not None:
        cells = edit["cells"] if isinstance(edit["cells"], list) else [edit["cells"]]
        for cell in cells:
            _inside("cell", cell, shape[0] * shape[1])
        chosen &= np.isin(np.arange(shape[0] * shape[1]), cells).reshape(shape)
    return chosen, do, value


def _inside(name: str, value: Any, count: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < count:
        raise BadSetting(f"There is no {name} {str(value)[:20]}: there are 0 to {count - 1}.")


def cache_keys(budgets: ArrayLike, cap: int | None, length: int, kv_heads: int) -> tuple[int, int]:
    """Keys (each with its value) that a KV cache holds after `length` tokens: (all of them, the most that are left when
    each head keeps min(budget, cap) for good). Query heads that share keys may keep different ones, so theirs add up.
    """
    budgets = np.asarray(budgets, dtype=np.int64)
    keys = np.minimum(budgets, length if cap is None else min(cap, length))
    shared = keys.reshape(len(budgets), kv_heads, -1).sum(2)  # [L, G]
    return len(budgets) * kv_heads * length, int(np.minimum(shared, length).sum())
