"""How well a router finds attention: recall of its mass, selectivity, and how much of a gap it closes."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ..errors import BadSetting


def bucket_recall(mass: Tensor, chosen: Tensor) -> float:
    """Mean mass that the chosen buckets hold: mass [..., n, C], chosen [..., n, l] -> 0 to 1 where masses sum to 1.

    Higher is better. Errors: BadSetting for shapes that do not fit, or a bucket chosen twice, which would count twice.
    """
    mass, chosen = torch.as_tensor(mass), torch.as_tensor(chosen).long()
    if mass.shape[:-1] != chosen.shape[:-1] or chosen.shape[-1] > mass.shape[-1]:
        raise BadSetting(f"Masses {list(mass.shape)} and chosen buckets {list(chosen.shape)} do not fit each other.")
    if mass.numel() == 0 or chosen.shape[-1] == 0:
        return 0.0
    if not 0 <= int(chosen.min()) <= int(chosen.max()) < mass.shape[-1]:
        raise BadSetting(f"Buckets run from 0 to {mass.shape[-1] - 1}, and {int(chosen.max())} was chosen.")
    if bool((chosen.sort(-1).values.diff(dim=-1) == 0).any()):
        raise BadSetting("A bucket was chosen twice for one query: choose different ones.")
    return float(mass.gather(-1, chosen).sum(-1).double().mean())


def captured(scores: Tensor, points: Tensor, *amounts: Tensor) -> list[Tensor]:
    """What the best l buckets by `scores` [..., n, C] hold of each of `amounts` [..., n, C], at each l of `points` [p]:
    tensors [..., n, p]. Ties go to the lower bucket."""
    order = scores.sort(stable=True, dim=-1, descending=True).indices
    return [values.expand_as(order).gather(-1, order).cumsum(-1)[..., points - 1] for values in amounts]


def budgets(buckets: int) -> list[int]:
    """Buckets to visit from C / 256 to C / 8 in powers of two, as far as C allows (at least 1)."""
    return sorted({max(1, buckets // share) for share in (256, 128, 64, 32, 16, 8)})


def points_for(buckets: int, limit: int = 128) -> list[int]:
    """The l at which curves are kept: all of 1 to C where they are at most `limit`, else about as many, evenly spaced
    on a logarithmic axis, with those of `budgets` and C itself."""
    if buckets <= limit:
        return list(range(1, buckets + 1))
    spaced = np.unique(np.geomspace(1, buckets, limit).round().astype(int)).tolist()
    return sorted({*spaced, *budgets(buckets), buckets})


class GapClosure(NamedTuple):
    """How much of the way from one router's recall to another's a third goes: 1 closes it all, below 0 is worse."""

    # As the paper's 69.8%; heads without a gap (less than 0.1% of mass) are left out.
    mean_of_ratios: float | None
    # So that heads with a wide gap count more.
    ratio_of_means: float | None
    heads: list[float | None]


def gap_closure(recall: ArrayLike, low: ArrayLike, high: ArrayLike) -> GapClosure:
    """The way from `low` (symmetric k-means) to `high` (the learned router) that recalls of heads [N] go."""
    recall, low, high = (np.asarray(values, dtype=np.float64).reshape(-1) for values in (recall, low, high))
    gap = high - low
    wide = np.abs(gap) >= 1e-3
    ratios = [float(a / b) if ok else None for a, b, ok in zip(recall - low, gap, wide, strict=True)]
    defined = [ratio for ratio in ratios if ratio is not None]
    total = float(gap.sum())
    ratio_of_means = None
    if abs(total) >= 1e-3 * max(1, len(gap)):
        ratio_of_means = float((recall - low).sum() / total)
    return GapClosure(float(np.mean(defined)) if defined else None, ratio_of_means, ratios)
