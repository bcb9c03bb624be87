"""Vertical-slash (MInference): the columns and diagonals that the last queries read."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..declaration import field
from ..kernels.block_maps import crossed_blocks, largest, last_queries
from ..kernels.scoring import Scoring
from .blockwise import Blockwise

COLUMNS, DIAGONALS = 30, 100  # the first columns and the nearest diagonals, which are always kept


@dataclass
class VerticalSlash(Blockwise):
    """The last 64 queries of a prompt show which keys all queries read (columns), and at which distances they read
    (diagonals). Blocks that one of the strongest columns or diagonals crosses are read, the others not.

    The first 30 columns and the nearest 100 diagonals are always among them. The original gathers single columns; here
    whole blocks are read, so the same settings read more. By its authors' word it is slower than dense attention below
    about 10,000 tokens.
    """

    title = "Vertical-slash"
    paper = "Jiang et al., 2024 (MInference), arXiv 2407.02490"
    budget_steps = {
        "vertical": lambda step: round(COLUMNS * 2 ** (step / 11)),
        "slash": lambda step: round(DIAGONALS * 2 ** (step / 11)),
    }

    vertical: int = field(64, "columns that each head keeps", low=30, high=1 << 16)
    slash: int = field(256, "diagonals that each head keeps", low=100, high=1 << 16)
    queries: int = field(64, "last queries that are looked at", low=1, high=512)

    def choose_blocks(self, q: Tensor, k: Tensor, scoring: Scoring) -> Tensor:
        columns, diagonals = last_queries(q, k, self.queries, scoring)  # sums of weights, both [B, H, T]
        columns[..., :COLUMNS] = torch.inf
        diagonals[..., :DIAGONALS] = torch.inf
        return crossed_blocks(largest(columns, self.vertical), largest(diagonals, self.slash), self.block)
