"""FlexPrefill: each head takes blocks by means, or columns and diagonals, as many as hold a share of the attention."""

from dataclasses import dataclass

from analysis.methods.base import setting
from analysis.methods.blockwise import Blockwise


@dataclass
class FlexPrefill(Blockwise):
    """Each head reads as much of a prompt as holds the share `gamma` of the attention of its last block of queries.

    Where attention between means of blocks comes close to the true one, the head takes the best blocks by these means.
    Elsewhere it takes columns and diagonals, as vertical-slash does, but as many as the head needs: the budget follows
    the text.
    """

    title = "FlexPrefill"
    paper = "Lai et al., 2025 (FlexPrefill), arXiv 2502.20766"
    kind = "flex_prefill"
    given = ("gamma", "tau")

    gamma: float = setting(0.9, "share of the attention that is to be read", "live", 0.1, 1.0, 0.01)
    tau: float = setting(
        0.1, "distance of the two estimates below which means of blocks decide", "live", 0.0, 1.0, 0.01
    )

    @classmethod
    def at_step(cls, step: int) -> dict:
        return {"gamma": max(step / 100, 0.1)}
