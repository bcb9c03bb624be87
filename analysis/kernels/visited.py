"""One query of each head over the keys of the buckets that it visits: they are gathered, the others are not touched."""

import torch
from torch import Tensor

from analysis.kernels.parts import part


def visits_keys(labels: Tensor, visits: Tensor) -> Tensor:
    """Which keys lie in a visited bucket: labels int64 [B, P, T], visits bool [B, H, n, C] with H a multiple of P ->
    bool [B, H, n, T]."""
    batch, parts, length = labels.shape
    heads, count = visits.shape[1:3]
    grouped = visits.reshape(batch, parts, heads // parts * count, -1)
    return grouped.gather(-1, labels[:, :, None].expand(-1, -1, grouped.shape[2], -1)).view(batch, heads, count, length)


def gathered_attention(query: Tensor, key: Tensor, value: Tensor, read: Tensor, scale: float) -> Tensor:
    """Exact attention of one query per head over the keys with `read` bool [B, H, T]: query [B, H, 1, D], key and value
    [B, G, T, D] -> [B, H, 1, D]. Each head reads at least one key."""
    batch, heads, length = read.shape
    with part("sort"):
        count = read.sum(-1)  # [B, H]
        most = int(count.max())
        slot = (read.cumsum(-1) - 1)[read]  # place of each read key among those of its head
        row, column = read.view(-1, length).nonzero(as_tuple=True)
        index = torch.zeros(batch * heads, most, dtype=torch.long, device=read.device)
        index[row, slot] = column
        shared = torch.arange(batch * heads, device=read.device) // (heads // key.shape[1])  # each head's keys
        keys, values = (x.flatten(0, 1)[shared[:, None], index] for x in (key, value))  # [B H, most, D]
    with part("set_a"):
        scores = (query.flatten(0, 1) @ keys.mT).float() * scale  # [B H, 1, most]
        empty = torch.arange(most, device=read.device) >= count.view(-1, 1, 1)
        weights = torch.softmax(scores.masked_fill(empty, float("-inf")), -1)
        return (weights.to(values.dtype) @ values).view(batch, heads, 1, -1)
