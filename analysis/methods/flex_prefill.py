"""FlexPrefill: each head takes blocks by means, or columns and diagonals, as many as hold a share of the attention."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..declaration import field
from ..kernels.block_maps import crossed_blocks, fewest_reaching, in_blocks, last_queries
from ..kernels.scoring import Scoring
from .blockwise import Blockwise


@dataclass
class FlexPrefill(Blockwise):
    """Each head reads as much of a prompt as holds the share `gamma` of the attention of its last block of queries.

    Where attention between means of blocks comes close to the true one, the head takes the best blocks by these means.
    Elsewhere it takes columns and diagonals, as vertical-slash does, but as many as the head needs: the budget follows
    the text.
    """

    title = "FlexPrefill"
    paper = "Lai et al., 2025 (FlexPrefill), arXiv 2502.20766"
    budget_steps = {"gamma": lambda step: max(step / 100, 0.1)}

    gamma: float = field(0.9, "share of the attention that is to be read", low=0.1, high=1.0, step=0.01)
    tau: float = field(
        0.1, "distance of the two estimates below which means of blocks decide", low=0.0, high=1.0, step=0.01
    )

    def choose_blocks(self, q: Tensor, k: Tensor, scoring: Scoring) -> Tensor:
        pooled = scoring.scores(_block_means(q, self.block), _block_means(k, self.block))  # [B, H, n, n]
        count = pooled.shape[-1]
        future = torch.ones(count, count, dtype=torch.bool, device=q.device).triu(1)
        pooled = torch.softmax(pooled.masked_fill(future, -torch.inf), -1)  # [B, H, n, n]
        columns, diagonals = last_queries(q, k, self.block, scoring)
        true = in_blocks(columns, self.block).sum(-1)  # [B, H, n]
        # the root of the Jensen-Shannon divergence is a distance
        close = _divergence(pooled[:, :, -1], true / true.sum(-1, keepdim=True)).sqrt() < self.tau  # [B, H]
        lines = fewest_reaching(columns, self.gamma), fewest_reaching(diagonals, self.gamma)
        by_blocks = fewest_reaching(pooled.flatten(2), self.gamma).unflatten(2, (count, count))
        return torch.where(close[..., None, None], by_blocks, crossed_blocks(*lines, self.block))


def _block_means(x: Tensor, block: int) -> Tensor:
    """The mean of each block of x [B, heads, T, D], the last one over what it has: [B, heads, n, D]."""
    sizes = x.new_ones(x.shape[2]).split(block)
    sums = F.pad(x, (0, 0, 0, -x.shape[2] % block)).unflatten(2, (-1, block)).sum(3)
    return sums / x.new_tensor([len(part) for part in sizes])[:, None]


def _divergence(a: Tensor, b: Tensor) -> Tensor:
    """Jensen-Shannon divergence in nats of distributions [..., N]."""
    middle = (a + b) / 2
    return ((torch.xlogy(a, a) + torch.xlogy(b, b)) / 2 - torch.xlogy(middle, middle)).sum(-1).clamp(min=0)
