"""How balanced, sure and stable groups are: largest group's share, confidence, stability (definitions 2.1)."""

import math

import numpy as np
import torch
from pandas import DataFrame
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from .sinkhorn import sinkhorn


def largest_share(group: np.ndarray, groups: int) -> float:
    """Dominance (Focus, section 4): share of all tokens, pooled, in the largest group; 1/K is perfect balance.

    `group`: labels [...]. The mean of this over single sequences is biased upwards: see `balanced_largest_share`. NaN
    without tokens.
    """
    counts = np.bincount(np.asarray(group).reshape(-1), minlength=groups)
    return float(counts.max() / counts.sum()) if counts.sum() else math.nan


def balanced_largest_share(tokens: int, groups: int, draws: int = 2000, seed: int = 0) -> float:
    """The largest share that balanced chance shows in so many tokens (K = 8: .171 of 128, .141 of 1,024)."""
    counts = np.random.default_rng(seed).multinomial(tokens, np.full(groups, 1 / groups), size=draws)
    return float(counts.max(-1).mean() / tokens) if tokens else math.nan


def confidence(assignment: np.ndarray) -> float:
    """Mean over tokens of the assignment's [..., K] largest entry, 1/K (undecided) to 1; NaN without tokens."""
    best = np.asarray(assignment, dtype=np.float64).max(-1)
    return float(best.mean()) if best.size else math.nan


def stability(first: np.ndarray, second: np.ndarray, groups: int) -> tuple[float, np.ndarray]:
    """Share of tokens that stay in their group between two routers, groups matched one to one (Hungarian).

    Group numbers mean nothing across routers; the matching keeps most tokens. first, second: labels [...] of the same
    tokens -> (share, matched [K]) where first's group g is second's matched[g].
    """
    first, second = np.asarray(first, np.int64).reshape(-1), np.asarray(second, np.int64).reshape(-1)
    # A pair of labels counts as one number.
    table = np.bincount(first * groups + second, minlength=groups * groups).reshape(groups, groups)
    rows, matched = linear_sum_assignment(table, maximize=True)
    return (float(table[rows, matched].sum() / first.size) if first.size else math.nan), matched


@torch.no_grad()
def rebalance(scores: Tensor, temperature: float, iterations: int) -> DataFrame:
    """Balance scores [L, T, K] of one text anew; 0 iterations are softmax. A row per layer: `share` of the tokens whose
    best group is the largest one; `mass` of the assignment in the group with the most (1/K when converged); mean
    `confidence`. Errors: BadSetting."""
    groups = sinkhorn(scores, temperature, iterations).cpu().numpy()  # [L, T, K]
    share = [largest_share(layer, groups.shape[-1]) for layer in groups.argmax(-1)]
    mass = groups.mean(1).max(-1).astype(float)
    return DataFrame({"share": share, "mass": mass, "confidence": [confidence(layer) for layer in groups]})
