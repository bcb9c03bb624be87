"""Heads that one shared selection starves: what each finds under it, and how much of its attention is far at all."""

from collections.abc import Iterable

import numpy as np

from ...answer import doc, record
from ...indexers import INDEXERS
from .cells import Cell
from .indexers import Indexed, kind_of
from .rows import at_budget
from .score import Curves


@record
class StarvedRow:
    """What a head finds under the selection that it shares."""

    kind: str
    layer: int
    head: int
    recall: float = doc("share of its far attention in the keys that its indexer chose")
    shared: float = doc("what the best selection for its whole layer holds of it")
    alone: float = doc("what as many keys of its own choice hold")
    far: float = doc("share of its attention that is far")


def starved_rows(
    curves: Curves, cell: Cell, indexed: Indexed, kinds: Iterable[str], visited: float
) -> list[StarvedRow]:
    """Every head under the selection that it shares, of indexers that share one; the hungriest first."""
    rows = []
    kinds = [kind for kind in kinds if INDEXERS[kind_of(kind)].shares != "head"]

    def found(kind: str) -> np.ndarray:
        return np.nanmean(at_budget(curves.recall[cell][kind], curves.points, visited), 0)

    shared, alone, far = found("oracle_layer"), found("oracle_head"), np.nanmean(indexed.far, 0)
    for kind in kinds:
        for cell_of, *values in zip(curves.heads, found(kind), shared, alone, far, strict=True):
            rows.append(StarvedRow(kind, *cell_of, *map(float, values)))
    return sorted(rows, key=lambda row: row.recall / max(row.alone, 1e-9))
