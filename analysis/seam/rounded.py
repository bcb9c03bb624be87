"""The reference of a KV cache in few bits: which queries read keys and values as they come, and which as stored."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..kernels.bits import stored
from ..kernels.narrow import Storage
from ..kernels.scoring import Scoring, at_least_float32


@dataclass(frozen=True)
class Rounded:
    """Keys and values [B, G, T, D] as they are stored, and from which query on each is read so, [B, G, T]."""

    key: Tensor
    value: Tensor
    key_since: Tensor
    value_since: Tensor

    @classmethod
    def of(cls, key: Tensor, value: Tensor, kept: Tensor, first: Tensor, ends: Tensor, storage: Storage) -> "Rounded":
        """Of keys and values [B, G, T, D] of prompts from `first` to `ends` [B], of which every head keeps `kept` bool
        [B, G, L], and of all tokens after them. Asks an accelerator nothing."""
        places = torch.arange(key.shape[2], device=key.device)
        first, ends = (x.to(key.device)[:, None, None] for x in (first, ends))
        stays = F.pad(kept.to(key.device), (0, key.shape[2] - kept.shape[2]), value=True) & (places >= first)
        count = (stays & (places < ends)).sum(-1, keepdim=True)  # [B, G, 1]
        # what stays comes first, in its order: as it is stored
        order = stays.byte().argsort(dim=-1, descending=True, stable=True)
        sides = []
        for states, stored_as in ((at_least_float32(key), storage.keys), (value, storage.values)):
            index = order[..., None].expand_as(states)
            coded = stored(stored_as, states.gather(2, index))
            sides.append(torch.empty_like(states).scatter_(2, index, coded))
        since = [
            torch.empty_like(order).scatter_(2, order, after + ends)
            for after in storage.since(places.expand_as(order), count)
        ]
        return cls(*sides, *since)

    def scores(self, scores: Tensor, queries: Tensor, rows: Tensor, scoring: Scoring) -> Tensor:
        """`scores` [B, H, n, Tk] of queries [B, H, n, D] at places `rows` [n], of stored keys where they read those."""
        used = scores.shape[-1]
        stored = self._reads(self.key_since, rows, used, queries.shape[1])
        return torch.where(stored, scoring.scores(queries, self.key[:, :, :used].to(queries)), scores)

    def read(self, weights: Tensor, value: Tensor, rows: Tensor) -> Tensor:
        """What weights [B, H, n, Tk] read of values [B, H, Tk, Dv] and, of those that are stored, of these."""
        used, heads = weights.shape[-1], weights.shape[1]
        stored = self._reads(self.value_since, rows, used, heads)
        coarse = self.value[:, :, :used].repeat_interleave(heads // self.value.shape[1], 1)
        return weights.masked_fill(stored, 0.0) @ value + weights.masked_fill(~stored, 0.0) @ coarse

    @staticmethod
    def _reads(since: Tensor, rows: Tensor, used: int, heads: int) -> Tensor:
        """bool [B, H, n, Tk]: which queries read which row as it is stored."""
        reads = rows[:, None] >= since[:, :, None, :used]
        return reads.repeat_interleave(heads // since.shape[1], 1)
