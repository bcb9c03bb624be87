"""Far-apart tokens that share a group, picked from streamed attention: never a T x T table of the text.

Source: Focus, section 5 ("Henry" at 18 and "Walker" at 772, affinity 0.945); the attention mass and the chance levels
beside each number are this project's: how much of the far attention falls on far pairs that share a group, against how
many such pairs there are. Attention does not cross windows, so a pair lies within one window.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import pad

from ..answer import doc, frame, record
from ..errors import BadSetting
from ..kernels.far import in_bands


@record
class Pair:
    """Two far-apart tokens of one group; positions count in the text."""

    layer: int
    head: int = doc("the query head that reads the key most, or the chosen one")
    group: int = doc("the shared group, of several the one with the largest part in the affinity")
    query_position: int
    key_position: int
    distance: int = doc("tokens from key to query")
    affinity: float = doc("g_q . g_k of their soft groups")
    attention: float = doc("probability that the head gives the key")
    uniform: float = doc("what reading every visible key alike would give, 1 / (query position in its window + 1)")


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


PAIR_COLUMNS = [column.name for column in fields(Pair)]
ROW = np.dtype([(column.name, "f8" if column.type is float else "i8") for column in fields(Pair)])


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

    def count(self, layer: int, rows: Tensor, mass: Tensor, far: Tensor, same_group: list[Tensor]) -> None:
        """rows int [n] in the window; mass [n, t] of keys skip_first.. and `far` bool [n, t], which of them are; same:
        per arm, bool [n, t], far pairs of one group."""

        # The largest distance in this block.
        reach = int(rows.max()) - self.skip_first
        bins = max(1, math.floor(math.log2(reach)) - math.floor(math.log2(self.min_distance)) + 1)
        # Key positions of bin b of query i are i - edge[b+1] < key <= i - edge[b].
        edges = torch.tensor(self.edges(bins))
        upto = (rows.cpu()[:, None] - edges + 1 - self.skip_first).clamp(0, mass.shape[1])  # [n, bins + 1]
        in_float64 = mass.double().cpu().numpy()
        sums = [in_bands(in_float64, pairs.cpu().numpy(), upto.numpy()) for pairs in (far, *same_group)]
        new = torch.from_numpy(np.stack(sums))  # [1 + arms, 2, bins]
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
        total = sum((pad(sums, (0, wide - sums.shape[-1])) for sums in self.sums.values()), torch.zeros(()))
        edges, rows = self.edges(wide), []
        for a, arm in enumerate(self.arms):
            for b in range(wide):
                rows.append(DistanceShares(arm, edges[b], edges[b + 1], *_shares(total[0, :, b], total[1 + a, :, b])))
        return frame(DistanceShares, rows)

    def numbers(self) -> dict[str, int]:
        """far_pairs, and same_group_pairs of the first arm, summed over layers."""
        pairs = [sums[:, 0].sum(-1) for sums in self.sums.values()]
        return {"far_pairs": int(sum(p[0] for p in pairs)), "same_group_pairs": int(sum(p[1] for p in pairs))}


def _shares(far: Tensor, arm: Tensor) -> tuple[float, float, float]:
    """(share of pairs, share of mass, lift) of [2] sums; NaN for an empty denominator."""
    pairs = float(arm[0] / far[0]) if far[0] > 0 else math.nan
    mass = float(arm[1] / far[1]) if far[1] > 0 else math.nan
    return pairs, mass, mass / pairs if pairs > 0 else math.nan


class PairCollector(FarShares):
    """Collects, window by window and layer by layer, the strongest far same-group pairs and each arm's far mass.

    arms: name -> memberships per layer, bool [T, K] of the whole text. Pairs are listed for the first arm; every
    arm gets its share of far pairs and of far attention mass. affinity: per layer the causal soft assignment g,
    float [T, K]. A pair is far when query - key >= min_distance. The first `skip_first` tokens of a window are no
    keys, neither listed nor counted: they are the attention sink, whatever they mean. top: how many pairs to keep.
    content: bool [T], both tokens of a listed pair must be True. layer, group, head: list this one only; a chosen
    head also restricts the attention mass. Listed pairs have attention above 0; equal attention is ordered by
    layer, query, key. Errors: BadSetting for a group that the router has not.
    """

    def __init__(
        self,
        arms: Mapping[str, Sequence[Tensor] | Tensor],
        affinity: Sequence[Tensor] | Tensor,
        *,
        min_distance: int = 128,
        top: int = 100,
        content: Tensor | None = None,
        layer: int | None = None,
        group: int | None = None,
        head: int | None = None,
        skip_first: int = 1,
    ) -> None:
        super().__init__(arms, min_distance, skip_first)
        self.members = [[members.bool() for members in layers] for layers in arms.values()]
        self.affinity, self.top = affinity, top
        self.layer, self.group, self.head = layer, group, head
        tokens, groups = self.members[0][0].shape
        if group is not None and not 0 <= group < groups:
            raise BadSetting(f"Groups run from 0 to {groups - 1}, and {group} was asked for.")
        self.content = torch.ones(tokens, dtype=torch.bool) if content is None else content.bool()
        # The strongest pairs so far, and the attention that a new one must reach to be among them.
        self.rows, self.least = np.empty(0, ROW), 0.0

    def go_on(self, sums: Tensor, pairs: Mapping[str, np.ndarray]) -> None:
        """Begin after earlier windows: with the sums of all layers, [L, 1 + arms, 2, bins], and the columns of the
        strongest pairs that another collector found there."""
        self.sums = dict(enumerate(sums))
        self.rows = np.empty(len(pairs["attention"]), ROW)
        for name in PAIR_COLUMNS:
            self.rows[name] = pairs[name]
        self.least = float(self.rows["attention"][-1]) if len(self.rows) == self.top else 0.0

    @torch.no_grad()
    def add(self, layer: int, rows: Tensor, probabilities: Tensor, start: int = 0) -> None:
        """One block of queries of the window that begins at token `start`: rows int [n] of positions inside the window,
        any order; probabilities [H, n, Tk] of attention to the window's keys 0..Tk-1 (0 after the query)."""
        self.sums.setdefault(layer, torch.zeros(1 + len(self.arms), 2, 0, dtype=torch.float64))
        rows = rows.to(probabilities.device)
        # Keys past the last far one can belong to no far pair, so they are not even looked at.
        limit = int(rows.max()) - self.min_distance + 1
        if limit <= self.skip_first:
            return
        chosen = slice(None) if self.head is None else slice(self.head, self.head + 1)
        block = probabilities[chosen, :, self.skip_first : limit]  # [h, n, t]
        block = block if block.dtype == torch.float64 else block.float()
        places = torch.arange(self.skip_first, limit, device=rows.device)  # [t]
        far = places <= rows[:, None] - self.min_distance  # [n, t]
        q, k = (start + rows).cpu(), (start + places).cpu()
        same_group = []
        for members in self.members:
            shared = members[layer][q].float() @ members[layer][k].float().T > 0
            same_group.append(shared.to(far) & far)
        self.count(layer, rows, block.mean(0), far, same_group)
        if self.top and self.layer in (None, layer):
            self._list(layer, rows, block, same_group[0], q, k)

    def _list(self, layer: int, rows: Tensor, block: Tensor, paired: Tensor, q: Tensor, k: Tensor) -> None:
        members, g = self.members[0][layer], self.affinity[layer]
        wanted_q, wanted_k = self.content[q], self.content[k]
        if self.group is not None:
            wanted_q, wanted_k = wanted_q & members[q, self.group].cpu(), wanted_k & members[k, self.group].cpu()
        wanted = paired & wanted_q.to(block.device)[:, None] & wanted_k.to(block.device)
        best = torch.where(wanted, block.amax(0), 0.0)  # [n, t]
        strong = (best > 0) & (best >= self.least)
        # More than can be listed: all that reach the last of the strongest, ties among them.
        if int(strong.sum()) > self.top:
            strong &= best >= best[strong].topk(self.top).values[-1]
        row, column = strong.nonzero(as_tuple=True)
        new = np.empty(len(row), ROW)
        new["attention"], new["head"] = (
            best[row, column].cpu(),
            block[:, row, column].argmax(0).cpu() + (self.head or 0),
        )
        new["uniform"] = 1.0 / (rows[row].cpu() + 1).double()
        row, column = q[row.cpu()], k[column.cpu()]
        both = (g[row] * g[column]).cpu().double()  # [m, K]
        shared = (members[row] & members[column]).cpu()
        new["group"] = torch.where(shared, both, -1.0).argmax(-1) if self.group is None else self.group
        new["layer"], new["query_position"], new["key_position"] = layer, row, column
        new["distance"], new["affinity"] = row - column, both.sum(-1)
        rows_so_far = np.concatenate([self.rows, new])
        order = (rows_so_far["key_position"], rows_so_far["query_position"], rows_so_far["layer"])
        self.rows = rows_so_far[np.lexsort((*order, -rows_so_far["attention"]))[: self.top]]
        if len(self.rows) == self.top:
            self.least = float(self.rows["attention"][-1])

    def table(self) -> pd.DataFrame:
        """The strongest pairs first: rows of Pair."""
        return pd.DataFrame(self.rows)
