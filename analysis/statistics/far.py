"""How far back a text is read, which tokens draw that reading, and the strongest far links of every token both ways:
what it reads, and who reads it later. Streamed block by block."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ..kernels.far import link, read_from_afar, strongest
from ..kernels.pool import accelerated
from ..seam.attention import Block

# Links that are kept of a token on either side.
MOST = 4


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

    def window(self, start: int) -> Callable[[Block, Tensor], None]:
        """A watch for the window whose first token is token `start` of the text (batch of one)."""

        def watch(block: Block, probabilities: Tensor) -> None:
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


class FarLinks:
    """Collects, over heads, layers and windows, the MOST far tokens that each token reads most, and that read it most.

    A link is as strong as the head that gives most makes it. As in `FarReading`, far is at least `min_distance` tokens
    back, and a window's first token is no key. `place` [2, tokens, MOST]: the other token in the text, -1 for none;
    first what a token reads, then who reads it, the strongest in front. `head`: counted over all layers; `share`: of
    that head's attention. `numbers`: what the layers are called, 0 to L - 1 unless given.
    """

    def __init__(self, tokens: int, heads: int, min_distance: int, numbers: Sequence[int] | None = None) -> None:
        self.heads, self.min_distance, self.numbers = heads, min_distance, numbers
        self.place = torch.full((2, tokens, MOST), -1, dtype=torch.int32)
        self.head = torch.zeros(2, tokens, MOST, dtype=torch.int16)
        self.share = torch.zeros(2, tokens, MOST)

    def window(self, start: int) -> Callable[[Block, Tensor], None]:
        """A watch for the window whose first token is token `start` of the text (batch of one)."""

        def watch(block: Block, probabilities: Tensor) -> None:
            # Behind them no key is far from any query of the block.
            reach = int((block.columns <= block.rows.max() - self.min_distance).sum())
            if not reach:
                return
            given = probabilities[0].float().contiguous()
            if accelerated(given):
                share, head = (part.cpu().numpy() for part in given[..., :reach].max(0))
            else:
                share, head = (np.empty((given.shape[1], reach), kind) for kind in (np.float32, np.int32))
                strongest(given.numpy(), share, head)
            visible = block.visible[0, 0, :, :reach].expand(share.shape).contiguous().cpu().numpy()
            layer = block.layer if self.numbers is None else self.numbers[block.layer]
            link(
                *(share, head.astype(np.int32), visible, block.rows.cpu().numpy(), block.columns[:reach].cpu().numpy()),
                *(self.min_distance, start, layer * self.heads),
                *(self.place.numpy(), self.head.numpy(), self.share.numpy()),
            )

        return watch
