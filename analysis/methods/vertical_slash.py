"""Vertical-slash (MInference): the columns and diagonals that the last queries read."""

from dataclasses import dataclass

from analysis.methods.base import setting
from analysis.methods.blockwise import Blockwise


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
    kind = "vertical_slash"
    given = ("vertical", "slash", "queries")

    vertical: int = setting(64, "columns that each head keeps", "live", 30, 1 << 16)
    slash: int = setting(256, "diagonals that each head keeps", "live", 100, 1 << 16)
    queries: int = setting(64, "last queries that are looked at", "live", 1, 512)

    @classmethod
    def at_step(cls, step: int) -> dict:
        wider = 2 ** (step / 11)
        return {"vertical": round(30 * wider), "slash": round(100 * wider)}
