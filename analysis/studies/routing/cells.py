"""The cells of a routing study: a partition of the keys, a minimum distance and what is done with the sinks; and the
mass that each query's attention puts into the buckets of a cell."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby

import torch
from torch import Tensor

from ...routers.buckets import bucket_sums, members, nearest
from ...seam.attention import Block

# First keys that are left out where sinks are.
SINKS = 4
RAW = "raw keys"
# What a mass is a share of: the far attention, or all of a query's.
FAR, ALL = "far", "all"
# A far mass below it is no mass.
EMPTY = 1e-30


@dataclass(frozen=True)
class Cell:
    """One setting: keys at least `min_distance` back, the first `sinks` keys left out, buckets of `partition`; masses
    are shares of the attention on those keys (`recall_of` far), or of all of it (GWR, equation 1 as it is written)."""

    min_distance: int
    sinks: int
    partition: str = RAW
    recall_of: str = FAR

    @property
    def name(self) -> str:
        """As in `d64 s4`, with the partition where it is not that of the raw keys."""
        variants = f" {self.partition}" * (self.partition != RAW) + " of all" * (self.recall_of != FAR)
        return f"d{self.min_distance} s{self.sinks}{variants}"

    @property
    def tokens_needed(self) -> int:
        """Tokens of the shortest text in which one query has one far key, sinks left out."""
        return self.min_distance + self.sinks + 1


@dataclass
class Partition:
    """Buckets of keys, per layer: `centroids` [P, C, D]; where it is a router's own, `of_queries` and `of_keys`
    [P, D, D] turn queries and keys first, and P are the chosen query heads, else the key-value heads."""

    name: str
    centroids: dict[int, Tensor] = field(default_factory=dict)
    of_queries: dict[int, Tensor] = field(default_factory=dict)
    of_keys: dict[int, Tensor] = field(default_factory=dict)


@dataclass
class LayerView:
    """What the blocks of one layer of one prompt have in common: `queries` [h, T, D] of the chosen heads, and for each
    partition the bucket of each key [P, T], as numbers and as members [P, T, C]."""

    layer: int
    heads: list[int]
    queries: Tensor
    labels: dict[str, Tensor] = field(default_factory=dict)
    member: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(
        cls, layer: int, heads: list[int], queries: Tensor, keys: Tensor, partitions: list[Partition]
    ) -> "LayerView":
        """From queries [H, T, D] and keys [G, T, D] of a layer; `heads` the chosen of its query heads."""
        view = cls(layer, heads, queries[heads])
        # The key-value head of each chosen query head.
        shared = [head // (len(queries) // len(keys)) for head in heads]
        for partition in partitions:
            centroids = partition.centroids[layer]
            if partition.of_keys:
                labels = nearest(keys[shared] @ partition.of_keys[layer], centroids)
            else:
                labels = nearest(keys, centroids)
                labels = labels[shared] if len(heads) < len(queries) else labels
            view.labels[partition.name] = labels
            view.member[partition.name] = members(labels, centroids.shape[1])
        return view

    def counted(self, partition: str, rows: Tensor, sinks: int) -> Tensor:
        """Keys in each bucket from place `sinks` up to each of consecutive places, float32 [P, n, C]; zeros before."""
        member, (first, last) = self.member[partition], (max(sinks, int(rows[0])), int(rows[-1]) + 1)
        if last <= sinks:
            return member.new_zeros(len(member), len(rows), member.shape[-1])
        counts = member[:, first:last].cumsum(1) + member[:, sinks:first].sum(1, keepdim=True)
        before = counts.new_zeros(len(counts), len(rows) - counts.shape[1], counts.shape[-1])
        return torch.cat([before, counts], 1)

    def per_head(self, x: Tensor) -> Tensor:
        """[P, ...] -> [h, ...], one row per chosen query head."""
        return x.repeat_interleave(len(self.heads) // len(x), 0)


def cell_masses(view: LayerView, block: Block, probabilities: Tensor, cells: list[Cell]) -> dict[Cell, Tensor]:
    """Mass of each bucket for each query of a block, [h, n, C] per cell, over the far keys alone; adding up to 1, or
    where the cell says so to their share of all attention. Zeros for a query without any far mass. `probabilities` [H,
    n, Tk] of one text."""
    # Indexing copies: not where all heads are chosen.
    weights = probabilities[view.heads] if len(view.heads) < len(probabilities) else probabilities
    masses = {}
    for cell, sums in _sums(view, block, cells, weights):
        total = sums.sum(-1, keepdim=True)
        shares = sums if cell.recall_of == ALL else sums / total.clamp(min=EMPTY)
        masses[cell] = torch.where(total > EMPTY, shares, 0.0)
    return masses


def cell_counts(view: LayerView, block: Block, cells: list[Cell]) -> dict[Cell, Tensor]:
    """Share of the visible far keys that lie in each bucket, [P, n, C] per cell; zeros where there are none."""
    pairs: Iterable[tuple[Cell, Tensor]]
    if int(block.visible.sum()) == int((block.rows + 1).sum()):
        # All keys up to each query, no sliding window: running counts say it all.
        pairs = ((cell, view.counted(cell.partition, block.rows - cell.min_distance, cell.sinks)) for cell in cells)
    else:
        pairs = _sums(view, block, cells, block.visible[0, :1].float())
    return {cell: far / far.sum(-1, keepdim=True).clamp(min=1) for cell, far in pairs}


def _sums(view: LayerView, block: Block, cells: list[Cell], weights: Tensor) -> Iterator[tuple[Cell, Tensor]]:
    """Weights [h, n, T], or [1, n, T] alike for all, of each cell's far keys by bucket: one product for all cells of a
    partition."""
    for partition, group in groupby(sorted(cells, key=lambda cell: cell.partition), lambda cell: cell.partition):
        of_partition, member = list(group), view.member[partition]
        distances = tuple(sorted({cell.min_distance for cell in of_partition}))
        of_keys = weights.expand(len(member), -1, -1).contiguous() if len(weights) == 1 else weights
        body, sink = bucket_sums(of_keys, member, block.rows, distances, max(cell.sinks for cell in of_partition))
        for cell in of_partition:
            place = distances.index(cell.min_distance)
            yield cell, body[place] + (0.0 if cell.sinks else sink[place])
