"""How much of the far attention falls on far pairs that share a group, against how many such pairs there are."""

import math
from collections.abc import Iterable

import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import pad

from ..answer import doc, frame, record


@record
class ArmShares:
    """Far pairs of one layer in one group by an arm. NaN where there are no far pairs."""

    layer: int
    arm: str = doc("the router or a null control")
    pairs_share: float = doc("share of the far pairs that are in one group")
    mass_share: float = doc("share of the far attention that they hold")
    lift: float = doc("mass_share / pairs_share: 1 when the groups say nothing about where attention goes")


@record
class DistanceShares:
    """Far pairs by distance in one group by an arm."""

    arm: str
    low: int = doc("tokens, inclusive")
    high: int = doc("tokens, exclusive")
    pairs_share: float
    mass_share: float
    lift: float


class FarShares:
    """Exact sums per layer, arm and distance bin (doubling bins from min_distance on) over streamed blocks.

    Mass is the mean over heads of the attention probability, summed over queries. `sums`: layer -> [1 + arms, 2, bins],
    all far pairs and then those of each arm; their number, and their mass.
    """

    def __init__(
        self, arms: Iterable[str], min_distance: int, skip_first: int, sums: dict[int, Tensor] | None = None
    ) -> None:
        self.arms, self.min_distance, self.skip_first = list(arms), min_distance, skip_first
        self.sums = sums or {}

    def edges(self, count: int) -> list[int]:
        """The first `count` + 1 bin edges: min_distance, then the powers of two above it."""
        power = 1 << self.min_distance.bit_length()
        return [self.min_distance] + [power << b for b in range(count)]

    def count(self, layer: int, rows: Tensor, mass: Tensor, same_group: list[Tensor]) -> None:
        """rows int [n] in the window; mass [n, t] of keys skip_first.., 0 where not far; same: per arm, bool [n, t]."""
        # The largest distance in this block.
        reach = int(rows.max()) - self.skip_first
        bins = max(1, math.floor(math.log2(reach)) - math.floor(math.log2(self.min_distance)) + 1)
        # Key positions of bin b of query i are i - edge[b+1] < key <= i - edge[b]: a difference of two running sums.
        edges = torch.tensor(self.edges(bins), device=rows.device)
        upto = (rows[:, None] - edges + 1 - self.skip_first).clamp(0, mass.shape[1])  # [n, bins + 1] keys at >= edge
        far = (upto[:, :-1] - upto[:, 1:]).sum(0).double()
        counts = [torch.stack([far, _by_bin(mass, upto)])]
        for arm in same_group:
            counts.append(torch.stack([_by_bin(arm, upto), _by_bin(mass * arm, upto)]))
        new = torch.stack(counts).cpu()  # [1 + arms, 2, bins]
        old = self.sums[layer]
        wide = max(old.shape[-1], bins)
        self.sums[layer] = pad(old, (0, wide - old.shape[-1])) + pad(new, (0, wide - bins))

    def controls(self) -> pd.DataFrame:
        """Rows of ArmShares."""
        rows = []
        for layer in sorted(self.sums):
            total = self.sums[layer].sum(-1)  # [1 + arms, 2]
            rows += [ArmShares(layer, arm, *_shares(total[0], total[1 + a])) for a, arm in enumerate(self.arms)]
        return frame(ArmShares, rows)

    def by_distance(self) -> pd.DataFrame:
        """Rows of DistanceShares, over all layers."""
        wide = max((sums.shape[-1] for sums in self.sums.values()), default=0)
        total = sum(pad(sums, (0, wide - sums.shape[-1])) for sums in self.sums.values())
        edges, rows = self.edges(wide), []
        for a, arm in enumerate(self.arms):
            for b in range(wide):
                rows.append(DistanceShares(arm, edges[b], edges[b + 1], *_shares(total[0, :, b], total[1 + a, :, b])))
        return frame(DistanceShares, rows)

    def numbers(self) -> dict[str, int]:
        """far_pairs, and same_group_pairs of the first arm, summed over layers."""
        pairs = [sums[:, 0].sum(-1) for sums in self.sums.values()]
        return {"far_pairs": int(sum(p[0] for p in pairs)), "same_group_pairs": int(sum(p[1] for p in pairs))}


def _by_bin(values: Tensor, upto: Tensor) -> Tensor:
    """Sum over queries of values [n, t] in each query's bins: upto [n, bins + 1] keys lie at or beyond each edge."""
    running = pad(values.cumsum(-1, dtype=torch.float64), (1, 0))  # [n, t + 1]
    beyond = running.gather(1, upto)
    return (beyond[:, :-1] - beyond[:, 1:]).sum(0)


def _shares(far: Tensor, arm: Tensor) -> tuple[float, float, float]:
    """(share of pairs, share of mass, lift) of [2] sums; NaN for an empty denominator."""
    pairs = float(arm[0] / far[0]) if far[0] > 0 else math.nan
    mass = float(arm[1] / far[1]) if far[1] > 0 else math.nan
    return pairs, mass, mass / pairs if pairs > 0 else math.nan
