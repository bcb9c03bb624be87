"""The oracle: grouped attention by its definition, in blocks of queries, differentiable, in any precision.

softmax over the keys j <= i that share a group with i or lie less than `window` before it. Scores are held in float32
or better. Slow and simple on purpose: every other backend is tested against it in float64.
"""

import torch
from torch import Tensor

BLOCK = 256  # queries at once


def attention(q: Tensor, k: Tensor, v: Tensor, members: Tensor, window: int, scale: float) -> tuple[Tensor, Tensor]:
    """q [B, H, T, D], k and v [B, G, T, D], members bool [B, T, K] -> (out [B, H, T, D], lse [B, H, T]).

    lse is float32, float64 for float64 inputs; both outputs have gradients.
    """
    exact = torch.promote_types(q.dtype, torch.float32)
    repeat = q.shape[1] // k.shape[1]
    keys, values = (x.to(exact).repeat_interleave(repeat, 1) for x in (k, v))  # [B, H, T, D]
    outputs, sums = [], []
    for start in range(0, q.shape[2], BLOCK):
        rows = torch.arange(start, min(start + BLOCK, q.shape[2]), device=q.device)
        stop = int(rows[-1]) + 1
        scores = q[:, :, rows].to(exact) @ keys[:, :, :stop].transpose(2, 3) * scale  # [B, H, n, stop]
        scores = scores.masked_fill(~kept(members, rows, stop, window)[:, None], float("-inf"))
        outputs.append((torch.softmax(scores, -1) @ values[:, :, :stop]).to(q.dtype))
        sums.append(torch.logsumexp(scores, -1))
    return torch.cat(outputs, 2), torch.cat(sums, 2)


def kept(members: Tensor, rows: Tensor, stop: int, window: int) -> Tensor:
    """bool [B, n, stop], True = read: which of the first `stop` tokens the tokens `rows` [n] read."""
    places, own = torch.arange(stop, device=rows.device), rows[:, None]
    together = members.float()
    shared = together[:, rows] @ together[:, :stop].transpose(1, 2) > 0.5
    return shared.logical_or_(places > own - window).logical_and_(places <= own)
