"""How far back a text is read and which tokens draw that reading, streamed block by block."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import torch

from ..kernels.far import read_from_afar
from ..seam.attention import Block


class FarReading:
    """Collects, over heads, layers and windows, how far back a text is read and which tokens draw that reading.

    Feed it to `apply(..., watch=reading.window(start))`. `far` means at least `min_distance` tokens back. A window's
    first token takes attention that means nothing (the sink), so it is counted apart and is never "far".
    """

    def __init__(self, tokens: int, min_distance: int) -> None:
        self.min_distance = min_distance
        # Far attention that each token draws.
        self.received = np.zeros(tokens)
        # The same far attention, spread evenly over the far tokens of each query.
        self.expected = np.zeros(tokens)
        # Distance bins: [0, 1), [1, 2), [2, 4), [4, 8), ...
        self.edges = 2 ** np.arange(0, 32)
        self.mass = np.zeros(len(self.edges))
        self.uniform = np.zeros(len(self.edges))
        self.far = self.far_uniform = self.sink = self.queries = 0.0

    def window(self, start: int) -> Callable[[Block, torch.Tensor], None]:
        """A watch for the window whose first token is token `start` of the text (batch of one)."""

        def watch(block: Block, probabilities: torch.Tensor) -> None:

            # Mean over heads, [n, Tk].
            read = probabilities[0].mean(0).double().cpu().numpy()
            # Causal, and within a sliding window.
            visible = block.visible[0, 0].expand(read.shape).contiguous().cpu().numpy()
            span = slice(start, start + read.shape[1])
            sink, far, far_uniform = read_from_afar(
                *(read, visible, block.rows.cpu().numpy(), block.columns.cpu().numpy(), self.min_distance),
                *(self.received[span], self.expected[span], self.mass, self.uniform),
            )
            self.sink += sink
            self.far += far
            self.far_uniform += far_uniform
            self.queries += len(read)

        return watch

    def tokens(self) -> np.ndarray:
        """Per token: far attention received in multiples of chance (NaN where no query is far enough to read it)."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(self.expected > 0, self.received / self.expected, np.nan)

    def distances(self) -> pd.DataFrame:
        """Columns `low high mass uniform`: share of attention by distance in tokens (high exclusive), sink left out."""
        used = np.flatnonzero(self.uniform > 0)
        low = np.concatenate([[0], self.edges])[used]
        shares = {"mass": self.mass[used] / self.queries, "uniform": self.uniform[used] / self.queries}
        return pd.DataFrame({"low": low, "high": self.edges[used], **shares})

    def shares(self) -> dict[str, float]:
        """Shares of all attention: `far`, `far_uniform` (what even reading would give) and `sink`."""
        return {name: getattr(self, name) / self.queries for name in ("far", "far_uniform", "sink")}
