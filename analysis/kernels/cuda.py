"""Masked and plain causal attention with its logsumexp on CUDA: the fallbacks of the packed kernels."""

import torch
import torch.nn.functional as F
from torch import Tensor

from analysis.kernels.reference import kept

ROWS = 1024  # queries at once under a mask


def dense(
    q: Tensor, k: Tensor, v: Tensor, members: Tensor, window: int, scale: float, causal: bool
) -> tuple[Tensor, Tensor]:
    """q [B, H, T, D], k and v [B, G, T, D], members bool [B, T, K] -> (out [B, H, T, D], lse [B, H, T])."""
    run = torch.ops.aten._scaled_dot_product_efficient_attention
    length, repeat = q.shape[2], q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(repeat, 1) for x in (k, v))
    if causal:
        out, lse = run(q, k, v, None, True, 0.0, True, scale=scale)[:2]
        return out, lse[..., :length].float()
    outputs, sums = [], []
    for start in range(0, length, ROWS):
        rows = torch.arange(start, min(start + ROWS, length), device=q.device)
        stop = int(rows[-1]) + 1
        read = kept(members, rows, stop, window)[:, None]  # [B, 1, n, stop]
        bias = q.new_zeros(read.shape).masked_fill_(~read, -torch.inf)
        bias = F.pad(bias, (0, -stop % 16))[..., :stop].expand(-1, q.shape[1], -1, -1)  # rows must begin aligned
        out, lse = run(q[:, :, rows], k[:, :, :stop], v[:, :, :stop], bias, True, 0.0, False, scale=scale)[:2]
        outputs.append(out)
        sums.append(lse[..., : len(rows)].float())
    return torch.cat(outputs, 2), torch.cat(sums, 2)
