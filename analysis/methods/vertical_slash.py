"""Vertical-slash (MInference): the columns and diagonals that the last queries read."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..kernels.block_maps import check_between, crossed_blocks, largest, last_queries
from ..kernels.scoring import Scoring
from .base import setting
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

    vertical: int = setting(64, "columns that each head keeps", "live", 30, 1 << 16)
    slash: int = setting(256, "diagonals that each head keeps", "live", 100, 1 << 16)
    queries: int = setting(64, "last queries that are looked at", "live", 1, 512)

    def choose_blocks(self, q: Tensor, k: Tensor, scoring: Scoring) -> Tensor:
        return vertical_slash(q, k, self.block, scoring, self.vertical, self.slash, self.queries)


def vertical_slash(
    q: Tensor, k: Tensor, block: int, scoring: Scoring, vertical: int = 64, slash: int = 256, queries: int = 64
) -> Tensor:
    """The last `queries` queries show which keys all of them read (columns) and at which distances they read
    (diagonals). The `vertical` columns and `slash` diagonals of largest sum are kept, the first COLUMNS and the nearest
    DIAGONALS always among them. A block is kept when one of these crosses it."""
    for name, value in (("vertical", vertical), ("slash", slash), ("queries", queries)):
        check_between(name, value, 1, math.inf)
    columns, diagonals = last_queries(q, k, queries, scoring)
    columns[..., :COLUMNS] = torch.inf
    diagonals[..., :DIAGONALS] = torch.inf
    return crossed_blocks(largest(columns, vertical), largest(diagonals, slash), block)
