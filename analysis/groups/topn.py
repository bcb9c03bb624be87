"""The N strongest pairs of a stream, kept in bounded memory with a total order."""

import numpy as np
import pandas as pd
from torch import Tensor

SLACK = 4  # a merge runs once this many times N rows wait


COLUMNS = {
    "attention": float, "layer": int, "query_position": int, "key_position": int, "head": int, "group": int,
    "affinity": float, "uniform": float,
}  # fmt: skip


class TopPairs:
    """Keeps the `size` rows of largest attention; equal ones by layer, then query, then key position.

    `least` is the attention a new row must reach to matter; it rises as rows come in.
    """

    def __init__(self, size: int) -> None:
        self.size, self.least = size, 0.0
        self._rows = {name: [np.empty(0, kind)] for name, kind in COLUMNS.items()}
        self._waiting = 0

    def add(self, **columns: Tensor) -> None:
        """Rows as one tensor [m] per column of COLUMNS."""
        for name, kind in COLUMNS.items():
            self._rows[name].append(columns[name].numpy().astype(kind))
        self._waiting += len(columns["attention"])
        if self._waiting >= SLACK * self.size or self.least == 0.0:
            self._merge()

    def _merge(self) -> None:
        rows = {name: np.concatenate(parts) for name, parts in self._rows.items()}
        order = np.lexsort((rows["key_position"], rows["query_position"], rows["layer"], -rows["attention"]))[
            : self.size
        ]
        self._rows = {name: [values[order]] for name, values in rows.items()}
        self._waiting = 0
        if self.size and len(order) == self.size:
            self.least = float(rows["attention"][order[-1]])

    def frame(self) -> pd.DataFrame:
        """The kept rows, strongest first."""
        self._merge()
        return pd.DataFrame({name: parts[0] for name, parts in self._rows.items()})
