"""The cells of a routing study: a partition of the keys, a minimum distance and what is done with the sinks; and the
mass that each query's attention puts into the buckets of a cell."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...routers.buckets import bucket_sums, members, nearest
from ...seam.attention import Block

SINKS = 4  # first keys that are left out where sinks are
RAW = "raw keys"
EMPTY = 1e-30  # a far mass below it is no mass


@dataclass(frozen=True)
class Cell:
    """One setting: keys at least `min_distance` back, the first `sinks` keys left out, buckets of `partition`."""

    min_distance: int
    sinks: int
    partition: str = RAW

    @property
    def name(self) -> str:
        """As in `d64 s4`, with the partition where it is not that of the raw keys."""
        return f"d{self.min_distance} s{self.sinks}" + f" {self.partition}" * (self.partition != RAW)


@dataclass
class Partition:
    """Buckets of keys, per layer: `centroids` [P, C, D]; where it is a router's own, `of_queries` and `of_keys`
    [P, D, D] turn queries and keys first, and P are the chosen query heads, else the key-value heads."""

    name: str
    centroids: dict[int, Tensor]
    of_queries: dict[int, Tensor] = field(default_factory=dict)
    of_keys: dict[int, Tensor] = field(default_factory=dict)

    def labels(self, layer: int, keys: Tensor, shared: list[int]) -> Tensor:
        """Bucket int64 [P, T] of keys [G, T, D]; `shared` the key-value head of each chosen query head."""
        if not self.of_keys:
            return nearest(keys, self.centroids[layer])
        return nearest(keys[shared] @ self.of_keys[layer], self.centroids[layer])


@dataclass
class LayerView:
    """What the blocks of one layer of one prompt have in common: `queries` [h, T, D] of the chosen heads, and for each
    partition the bucket of each key [P, T], as numbers and as members [P, T, C]."""

    layer: int
    heads: list[int]
    shared: list[int]
    queries: Tensor
    labels: dict[str, Tensor]
    member: dict[str, Tensor]
    _counted: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(
        cls, layer: int, heads: list[int], query_heads: int, queries: Tensor, keys: Tensor, partitions: list[Partition]
    ) -> "LayerView":
        """From queries [H, T, D] and keys [G, T, D] of a layer; `heads` the chosen of `every` query heads."""
        repeat = query_heads // len(keys)
        shared = [head // repeat for head in heads]
        labels, member = {}, {}
        for partition in partitions:
            bucket_of_key = partition.labels(layer, keys, shared)
            if len(heads) < query_heads and not partition.of_keys:
                bucket_of_key = bucket_of_key[shared]
            labels[partition.name] = bucket_of_key
            member[partition.name] = members(bucket_of_key, partition.centroids[layer].shape[1])
        return cls(layer, heads, shared, queries[heads], labels, member)

    def counted(self, partition: str) -> Tensor:
        """Keys in each bucket up to each place, float32 [P, T, C]."""
        if partition not in self._counted:
            self._counted[partition] = self.member[partition].cumsum(1)
        return self._counted[partition]

    def per_head(self, x: Tensor) -> Tensor:
        """[P, ...] -> [h, ...], one row per chosen query head."""
        return x.repeat_interleave(len(self.heads) // len(x), 0)


def cell_masses(view: LayerView, block: Block, probabilities: Tensor, cells: list[Cell]) -> dict[Cell, Tensor]:
    """Mass of each bucket for each query of a block, [h, n, C] per cell, over the far keys alone and adding up to 1;
    zeros for a query without any far mass. `probabilities` [H, n, Tk] of one text."""
    weights = probabilities[view.heads] if len(view.heads) < len(probabilities) else probabilities
    masses = {}
    for partition, of_partition in _by_partition(cells).items():
        sums = _sums(weights, view.member[partition], block.rows, of_partition)
        for cell in of_partition:
            total = sums[cell].sum(-1, keepdim=True)
            masses[cell] = torch.where(total > EMPTY, sums[cell] / total.clamp(min=EMPTY), 0.0)
    return masses


def cell_counts(view: LayerView, block: Block, cells: list[Cell]) -> dict[Cell, Tensor]:
    """Share of the visible far keys that lie in each bucket, [P, n, C] per cell; zeros where there are none."""
    counts = {}
    # All keys up to each query: no sliding window.
    plain = int(block.visible.sum()) == int((block.rows + 1).sum())
    for partition, of_partition in _by_partition(cells).items():
        member = view.member[partition]
        if plain:
            count = view.counted(partition)
        else:
            visible = block.visible[0, 0].expand(len(member), -1, -1).float().contiguous()
            sums = _sums(visible, member, block.rows, of_partition)
        for cell in of_partition:
            if plain:
                last = block.rows - cell.min_distance
                far = count[:, last.clamp(min=0)]  # [P, n, C]
                first = count[:, cell.sinks - 1, None] if cell.sinks else 0.0
                far = ((far - first).clamp(min=0)) * (last >= cell.sinks)[:, None]
            else:
                far = sums[cell]
            counts[cell] = far / far.sum(-1, keepdim=True).clamp(min=1)
    return counts


def _sums(weights: Tensor, member: Tensor, rows: Tensor, cells: list[Cell]) -> dict[Cell, Tensor]:
    distances = tuple(sorted({cell.min_distance for cell in cells}))
    sinks = max(cell.sinks for cell in cells)
    body, sink = bucket_sums(weights, member, rows, distances, sinks)
    index = {distance: number for number, distance in enumerate(distances)}
    return {
        cell: body[index[cell.min_distance]] + (0.0 if cell.sinks else sink[index[cell.min_distance]]) for cell in cells
    }


def _by_partition(cells: list[Cell]) -> dict[str, list[Cell]]:
    grouped: dict[str, list[Cell]] = {}
    for cell in cells:
        grouped.setdefault(cell.partition, []).append(cell)
    return grouped
