"""How balanced, sure and stable groups are: largest group's share, confidence, stability (definitions 2.1)."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from ..errors import BadSetting
from .sinkhorn import sinkhorn


def group_counts(group: np.ndarray, groups: int) -> np.ndarray:
    """Tokens per group of labels [...] (all pooled) -> int64 [K]. Errors: BadSetting for a label outside 0..K-1."""
    labels = np.asarray(group).reshape(-1)
    if labels.size and not (0 <= labels.min() and labels.max() < groups):
        raise BadSetting(f"Group numbers run from 0 to {groups - 1}, and these from {labels.min()} to {labels.max()}.")
    return np.bincount(labels, minlength=groups)


def largest_share(group: np.ndarray, groups: int) -> float:
    """Dominance (Focus, section 4): share of all tokens, pooled, in the largest group; 1/K is perfect balance.

    The mean of this over single sequences is biased upwards: see `balanced_largest_share`. NaN without tokens.
    """
    counts = group_counts(group, groups)
    return float(counts.max() / counts.sum()) if counts.sum() else math.nan


def balanced_largest_share(tokens: int, groups: int, draws: int = 2000, seed: int = 0) -> float:
    """The largest share that balanced chance shows in so many tokens (K = 8: .171 of 128, .141 of 1,024)."""
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
    """Mean over tokens of the assignment's [..., K] largest entry, 1/K (undecided) to 1; NaN without tokens."""
    best = np.asarray(assignment, dtype=np.float64).max(-1)
    return float(best.mean()) if best.size else math.nan


def stability(first: np.ndarray, second: np.ndarray, groups: int) -> tuple[float, np.ndarray]:
    """Share of tokens that stay in their group between two routers, groups matched one to one (Hungarian).

    Group numbers mean nothing across routers; the matching keeps most tokens. first, second: labels [...] of the same
    tokens -> (share, matched [K]) where first's group g is second's matched[g]. Errors: BadSetting.
    """
    first, second = np.asarray(first), np.asarray(second)
    if first.shape != second.shape:
        raise BadSetting(f"Stability compares the same tokens, and got {first.shape} against {second.shape} labels.")
    group_counts(first, groups), group_counts(second, groups)
    table = np.bincount(first.reshape(-1).astype(np.int64) * groups + second.reshape(-1), minlength=groups * groups)
    table = table.reshape(groups, groups)
    rows, matched = linear_sum_assignment(table, maximize=True)
    return (float(table[rows, matched].sum() / first.size) if first.size else math.nan), matched


@dataclass(frozen=True)
class Balance:
    """Per layer [L]: `share` of the tokens whose best group is the largest one; `mass` of the assignment in the group
    with the most (1/K when converged); mean `confidence`."""

    share: list[float]
    mass: list[float]
    confidence: list[float]

    @property
    def mean_share(self) -> float:
        """The largest group's share, mean over layers."""
        return sum(self.share) / len(self.share)


@torch.no_grad()
def rebalance(scores: Tensor, temperature: float, iterations: int) -> Balance:
    """Balance scores [L, T, K] of one text anew, each layer by itself; 0 iterations are softmax. Errors: BadSetting."""
    groups = sinkhorn(scores, temperature, iterations).cpu().numpy()  # [L, T, K]
    mass = groups.mean(1).max(-1)
    share = [largest_share(layer, groups.shape[-1]) for layer in groups.argmax(-1)]
    return Balance(share, np.asarray(mass, dtype=float).tolist(), [confidence(layer) for layer in groups])
