"""Compressed entries: DeepSeek-V4 makes a key of every few tokens, and its layers read some of these behind the last
tokens. An entry stands for several tokens and is none. So methods and statistics see the tokens alone, and the entries
that the model lets be read stand in every softmax beside them, as a learned sink does, with values of their own.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..kernels.scoring import Scoring, at_least_float32, softmax


@dataclass
class Beside:
    """The entries that a block of n queries may read: their `scores` [B, H, n, E], -inf where one may not be read, and
    their `value` [B, H, E, Dv]."""

    scores: Tensor
    value: Tensor
    # [B, H, n, E] of the softmax, once that was made.
    shares: Tensor | None = None

    def softmax(self, scores: Tensor, sinks: Tensor | None, dtype: torch.dtype) -> Tensor:
        """The shares of the tokens, of their scores [B, H, n, Tk], in one softmax with the entries; zeros where nothing
        is read."""
        shares = softmax(torch.cat([scores, self.scores], -1), sinks, dtype).nan_to_num(0.0)
        of_tokens, self.shares = shares.split([scores.shape[-1], self.scores.shape[-1]], -1)
        return of_tokens

    def read(self, dropout: float) -> Tensor:
        """What the queries read of them, [B, H, n, Dv]."""
        assert self.shares is not None, "the softmax was made"
        return F.dropout(self.shares.to(self.value.dtype), dropout) @ self.value


@dataclass(frozen=True)
class Entries:
    """Those of one call of a layer: `key` [B, G, E, D], `value` [B, G, E, Dv], and `visible` bool [B, 1 or H, n, E],
    which of them a query may read by the model's own rule."""

    key: Tensor
    value: Tensor
    visible: Tensor

    def beside(self, query: Tensor, start: int, scoring: Scoring) -> Beside:
        """What the queries [B, H, n, D] from `start` on may read."""
        hidden = ~self.visible[:, :, start : start + query.shape[2]]
        scores = scoring.scores(query, at_least_float32(self.key)).masked_fill(hidden, float("-inf"))
        return Beside(scores, self.value.repeat_interleave(query.shape[1] // self.value.shape[1], 1))


def compresses(module: Any) -> bool:
    """Whether an attention module reads entries behind its tokens: its mask must be one of numbers."""
    return getattr(module, "compressor", None) is not None


def apart(tensor: Tensor, dim: int, tokens: int) -> tuple[Tensor, Tensor]:
    """What of a tensor is of the first keys, which are `tokens`, and what of the entries behind them."""
    return tensor.narrow(dim, 0, tokens), tensor.narrow(dim, tokens, tensor.shape[dim] - tokens)
