"""Memberships of tokens in groups as the kernels use them: bit sets, sizes, and exact counts of pairs.

A pair (i, j) with j <= i is kept when the tokens share a group or i - j < window. Counting needs no T x T: distinct
bit sets are counted against each other, and the window is walked distance by distance.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

MOST_GROUPS = 64  # one bit each
# Pairs of distinct bit sets held at once while counting.
TYPES_AT_ONCE = 1 << 22


def bits_of(members: Sequence[bool]) -> list[int]:
    """The bit of each group of one token; of the 64th as an int64 holds it."""
    return [(1 << group) - (1 << 64) * (group == 63) for group, member in enumerate(members) if member]


def bit_sets(members: Tensor) -> Tensor:
    """bool [..., T, K] -> integers [..., T] of the smallest type with a bit for each group; no group is 0."""
    groups = members.shape[-1]
    sizes = (8, torch.uint8), (15, torch.int16), (31, torch.int32), (MOST_GROUPS, torch.int64)
    kind = next(kind for limit, kind in sizes if groups <= limit)
    bits = torch.ones(groups, dtype=torch.long, device=members.device) << torch.arange(groups, device=members.device)
    return (members * bits).sum(-1).to(kind)


def texts_of(members: Tensor) -> Tensor:
    """Memberships of every key-value head [B, T, G, K] as of texts of their own [B G, T, K]; others as they are."""
    return members.transpose(1, 2).flatten(0, 1) if members.dim() == 4 else members


def apart(states: Tensor, members: Tensor) -> Tensor:
    """States [B, H, ...] of the heads of these texts: [B G, H / G, ...] of memberships [B, T, G, K]."""
    return states.reshape(-1, states.shape[1] // members.shape[2], *states.shape[2:]) if members.dim() == 4 else states


def causal_pairs(batch: int, length: int) -> int:
    """Pairs (i, j) with j <= i in `batch` texts of `length` tokens."""
    return batch * length * (length + 1) // 2


def kept_pairs(members: Tensor, window: int) -> int:
    """Pairs that share a group or lie in the window, counted exactly; members bool [B, T, K]."""
    pairs = 0
    for sets in bit_sets(members):
        # Strangers in the window; a token without groups is one to itself.
        strangers = (sets == 0).sum()
        for distance in range(1, min(window, len(sets))):
            strangers = strangers + ((sets[distance:] & sets[:-distance]) == 0).sum()
        pairs += _sharing(sets) + int(strangers)
    return pairs


def _sharing(sets: Tensor) -> int:
    """Pairs j <= i that share a group, from the sizes of the distinct bit sets [T]."""
    types, sizes = torch.unique(sets, return_counts=True)
    sizes, total = sizes.double(), 0.0
    step = max(1, TYPES_AT_ONCE // len(types))
    for start in range(0, len(types), step):
        share = (types[start : start + step, None] & types) != 0
        total += float((sizes[start : start + step, None] * share * sizes).sum())
    # a token shares its groups with itself
    alone = float(sizes[types != 0].sum())
    return round((total + alone) / 2)
