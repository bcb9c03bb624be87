"""SparQ: scores told from the few largest channels of a query, and only the best keys and values read in full."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..declaration import field
from ..kernels.topk import smallest_kept
from ..seam.calls import Block, CosSin, stacked
from ..seam.layers import shape_of
from .base import Method


@dataclass
class SparQ(Method):
    """A query estimates its scores from the `channels` of its vector that are largest in absolute value, and reads the
    `k` keys and values that look best, besides itself; the last `local` tokens are always among them.

    Heads that share keys and values choose channels and keys together, by their sums. Beside these keys the chosen
    channels of every key are read, so a quarter of the channels costs at least an eighth of a dense read. With all
    channels the estimate is the score itself. The estimates also say how much of the attention the chosen keys hold:
    *reallocation* gives the rest to the mean of all values up to the query, which a model keeps as a running sum,
    instead of spreading it over what was read. The original estimates only for new tokens; here every token of a text
    does, as if it were new. It needs no training; without reallocation the softmax over what it reads is exact.
    """

    title = "SparQ"
    paper = "Ribar et al., 2023 (SparQ), sections 4 and 5"
    budgeted = "k"
    masked_scores = 6.0
    dim_ = 1

    k: int = field(128, "keys and values that each query reads besides its own token's", low=1, high=1 << 20)
    channels: int = field(0, "channels from which scores are estimated; 0: a quarter of them", low=0, high=512)
    reallocate: str = field(
        "mean",
        "where the attention of unread keys goes: to the mean of all values, or nowhere",
        options=("mean", "none"),
    )
    local: int = field(32, "last tokens that are always among the k", low=0, high=1 << 20)

    def check(self, lm: Any) -> None:
        self.dim_ = shape_of(lm)[-1]

    def taken(self, dim: int) -> int:
        """How many of `dim` channels are looked at."""
        return min(dim, self.channels or max(1, dim // 4))

    @property
    def reads_of_visible(self) -> float:
        """The chosen channels of every key."""
        return self.taken(self.dim_) / (2 * self.dim_)

    def encode_tokens(self, layer: int, query: Tensor, key: Tensor, past: int, module: Any, tables: CosSin) -> Tensor:
        """[B, T, H + G, D]: query and key of each token."""
        return stacked(query, key).detach()

    def estimates(self, block: Block) -> Tensor:
        """Scores from the largest channels of each query, before the model's scaling, float32 [B, H, n, Tk]: as many
        times larger as the square root of the share of the query's absolute sum that was left out demands."""
        query, key = block.queries_and_keys()  # [B, H, n, D], [B, G, Tk, D]
        grouped = query.unflatten(1, (key.shape[1], -1))  # [B, G, H / G, n, D]
        size = grouped.abs()
        best = size.sum(2).topk(self.taken(query.shape[-1]), -1).indices  # [B, G, n, r]
        chosen = torch.zeros_like(size[:, :, 0]).scatter_(-1, best, 1.0)[:, :, None]  # [B, G, 1, n, D]
        smallest = torch.finfo(torch.float32).tiny
        stretch = (size.sum(-1, keepdim=True) / (size * chosen).sum(-1, keepdim=True).clamp(min=smallest)).sqrt()
        return ((grouped * chosen * stretch) @ key.mT[:, :, None]).flatten(1, 2)

    def mask(self, block: Block) -> Tensor:
        key_heads = block.remembered()[1].shape[2] - block.scores.shape[1]
        estimated = block.once(f"{self.channels} channels", lambda: self.estimates(block))
        together = estimated.unflatten(1, (key_heads, -1)).sum(2)  # [B, G, n, Tk]
        together.masked_fill_(block.distances() <= min(self.local, self.k), torch.inf)
        together.masked_fill_(~block.visible, -torch.inf)
        best = together >= smallest_kept(together, [self.k + 1] * key_heads)
        return best.repeat_interleave(block.scores.shape[1] // key_heads, 1)

    def reweight(self, block: Block, probabilities: Tensor) -> Tensor:
        """The softmax times the share that it seems to hold, and the rest evenly over all visible keys."""
        if self.reallocate == "none":
            return probabilities
        assert block.scoring is not None and block.read is not None, (
            "the seam says how scores are made and what is read"
        )
        estimated = block.scoring.of(block.once(f"{self.channels} channels", lambda: self.estimates(block)))
        estimated = torch.softmax(estimated.masked_fill_(~block.visible, -torch.inf), -1)
        left = estimated.mul_(~block.read).sum(-1, keepdim=True).nan_to_num()  # [B, H, n, 1]
        mean = block.visible / block.visible.sum(-1, keepdim=True).clamp(min=1)
        return ((1 - left) * probabilities).addcmul_(left, mean)
