"""Grouped attention through a kernel for packed texts (CUDA): two calls, one over groups and one over windows.

The group call packs the members of every group of every text, sorted; a token in several groups comes several times.
Both calls keep to their pairs by extra head dimensions instead of masks, as in `cpu`: +PUSH in queries and -PUSH in
keys, in the group call for lower groups, in the window call for all groups, so that the window reads strangers only.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from analysis.kernels import varlen
from analysis.kernels.cpu import PUSH
from analysis.kernels.merge import merge


def grouped(
    q: Tensor, k: Tensor, v: Tensor, members: Tensor, window: int, scale: float, backend: str
) -> tuple[Tensor, Tensor]:
    """q [B, H, T, D], k and v [B, G, T, D], members bool [B, T, K], any number of groups -> (out, lse [B, H, T])."""
    batch, heads, length, size = q.shape
    q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (q, k, v))  # [B T, heads, D]
    every = members.flatten(0, 1).to(q.dtype)  # [B T, K]
    text, group, place = members.transpose(1, 2).nonzero(as_tuple=True)  # sorted by text, group, place
    tokens = text * length + place
    several = bool((members.sum(-1) > 1).any())
    lower = every[tokens] * (torch.arange(members.shape[-1], device=q.device) < group[:, None]) if several else None
    sizes = members.sum(1).flatten()
    far, far_lse = _call(backend, q[tokens], k[tokens], v[tokens], lower, sizes, scale)
    texts = torch.full((batch,), length, device=q.device)
    out, lse = _call(backend, q, k, v, every, texts, scale, window)
    out = out.float()
    turn = (members.cumsum(-1)[text, place, group] - 1) if several else torch.zeros_like(tokens)
    for index in range(int(turn.max()) + 1 if len(turn) else 0):
        chosen = (turn == index).nonzero()[:, 0]
        rows = tokens[chosen]
        out[rows], total = merge(out[rows], lse[:, rows].T, far[chosen], far_lse[:, chosen].T)
        lse[:, rows] = total.T
    out = out.to(q.dtype).unflatten(0, (batch, length)).transpose(1, 2)
    return out, lse.unflatten(1, (batch, length)).transpose(0, 1)


def _call(backend, q, k, v, extra, sizes, scale, window=None) -> tuple[Tensor, Tensor]:
    """One packed call; pairs whose `extra` [N, E] overlap weigh nothing. lse -inf where nothing is left."""
    dimensions = q.shape[-1]
    if extra is not None:
        push = extra * (PUSH / scale**0.5)
        q, k, v = (_widened(x, part) for x, part in ((q, push), (k, -push), (v, push * 0)))
    starts = F.pad(sizes.cumsum(0), (1, 0)).int()
    out, lse = varlen.attention(backend, q, k, v, starts, int(sizes.max()), scale, window)
    return out[..., :dimensions], lse.float().masked_fill(lse < -(PUSH**2) / 2, float("-inf"))


def _widened(x: Tensor, extra: Tensor) -> Tensor:
    """x [N, heads, D] with extra [N, E] behind every head's dimensions, padded to a multiple of 8."""
    wide = torch.cat([x, extra[:, None].expand(-1, x.shape[1], -1)], -1)
    return F.pad(wide, (0, -wide.shape[-1] % 8))
