"""Random states, and attention as it is defined, in float64: what every kernel is held against."""

import torch
from torch import Tensor


def states(batch, heads, kv_heads, length, size, dtype=torch.float32, seed=0) -> list[Tensor]:
    """Unit-normal queries [B, H, T, D], keys and values [B, G, T, D]."""
    draw = torch.Generator().manual_seed(seed)
    return [torch.randn(batch, n, length, size, generator=draw).to(dtype) for n in (heads, kv_heads, kv_heads)]


def grouped_pairs(members: Tensor, window: int, n_sink: int = 0) -> Tensor:
    """bool [..., T, T]: the pairs of memberships [..., T, K], of the window and of the first tokens."""
    places = torch.arange(members.shape[-2], device=members.device)
    shared = (members[..., :, None, :] & members[..., None, :, :]).any(-1)
    return (shared | (places[:, None] - places < window) | (places < n_sink)) & (places <= places[:, None])


def defined(q: Tensor, k: Tensor, v: Tensor, read: Tensor, scale=None, sinks: Tensor | None = None):
    """(out, lse): a softmax over the scores of what is `read`, bool, broadcastable to [B, H, n, T], and of learned
    sinks [H], whose share is dropped; zeros where nothing is read."""
    q, (k, v) = q.double(), (x.double().repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = (q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)).masked_fill(~read, -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.double()[:, None, None].expand(*scores.shape[:3], 1)], -1)
    return scores.softmax(-1)[..., : k.shape[2]].nan_to_num(0.0) @ v, scores.logsumexp(-1)
