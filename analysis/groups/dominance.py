"""How balanced, sure and stable groups are: largest group's share, confidence, balance, stability (definitions 2.1)."""

import math

import numpy as np
from scipy.optimize import linear_sum_assignment

from analysis.errors import BadSetting


def group_counts(group: np.ndarray, groups: int) -> np.ndarray:
    """Tokens per group of labels [...] (all pooled) -> int64 [K]. Errors: BadSetting for a label outside 0..K-1."""
    labels = np.asarray(group).reshape(-1)
    if labels.size and not (0 <= labels.min() and labels.max() < groups):
        raise BadSetting(f"Group numbers run from 0 to {groups - 1}, and these from {labels.min()} to {labels.max()}.")
    return np.bincount(labels, minlength=groups)


def largest_share(group: np.ndarray, groups: int) -> float:
    """Dominance (Focus, section 4): share of all tokens, pooled, in the largest group; 1/K is perfect balance.

    The mean of this over single sequences is biased upwards; `balanced_largest_share` says by how much. NaN without
    tokens.
    """
    counts = group_counts(group, groups)
    return float(counts.max() / counts.sum()) if counts.sum() else math.nan


def balanced_largest_share(tokens: int, groups: int, draws: int = 2000, seed: int = 0) -> float:
    """The largest share that perfectly balanced chance shows on a text of this length (K = 8: .171 at 128, .141 at
    1,024)."""
    counts = np.random.default_rng(seed).multinomial(tokens, np.full(groups, 1 / groups), size=draws)
    return float(counts.max(-1).mean() / tokens) if tokens else math.nan


def balance_note(tokens: int, groups: int) -> str:
    """One sentence that keeps a reader from taking the chance level of a short text for dominance."""
    chance = balanced_largest_share(tokens, groups)
    return (
        f"In {tokens:,} tokens even perfectly balanced chance puts {chance:.1%} into the largest of {groups} groups, "
        f"where 1/{groups} is {1 / groups:.1%}."
    )


def confidence(assignment: np.ndarray) -> float:
    """Mean over tokens of the largest entry of the assignment [..., K], from 1/K (undecided) to 1; NaN without
    tokens."""
    best = np.asarray(assignment, dtype=np.float64).max(-1)
    return float(best.mean()) if best.size else math.nan


def balance_entropy(counts: np.ndarray) -> float:
    """Entropy of the groups' shares over log K: 1 = equal groups, 0 = one group holds all. counts [K]; NaN without
    tokens."""
    counts = np.asarray(counts, dtype=np.float64)
    if counts.sum() == 0:
        return math.nan
    if len(counts) == 1:
        return 1.0
    share = counts[counts > 0] / counts.sum()
    return float(abs((share * np.log(share)).sum()) / math.log(len(counts)))


def stability(first: np.ndarray, second: np.ndarray, groups: int) -> tuple[float, np.ndarray]:
    """Share of tokens that stay in their group between two routers, after matching the groups one to one
    (Hungarian).

    Group numbers carry no meaning across routers; the matching keeps most tokens. first, second: labels [...] of
    the same tokens -> (share, matched [K]) where first's group g is second's group matched[g]. Errors: BadSetting
    on unequal shapes.
    """
    first, second = np.asarray(first), np.asarray(second)
    if first.shape != second.shape:
        raise BadSetting(f"Stability compares the same tokens, and got {first.shape} against {second.shape} labels.")
    group_counts(first, groups), group_counts(second, groups)
    table = np.bincount(first.reshape(-1).astype(np.int64) * groups + second.reshape(-1), minlength=groups * groups)
    table = table.reshape(groups, groups)
    rows, matched = linear_sum_assignment(table, maximize=True)
    return (float(table[rows, matched].sum() / first.size) if first.size else math.nan), matched
