"""Attention with an additive bias shared by the heads, and a gradient to that bias: what a soft gate in training needs.

A gate of the form s + log(gate) is such a bias. Without this kernel its training pass holds a dozen tensors
[B, H, T, T] per layer; here only the probabilities of the causal half are kept.
"""

import torch
from torch import Tensor

BLOCK = 128  # queries at once: above the diagonal block nothing is computed, and the block stays in the cache


def biased_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float | None = None) -> Tensor:
    """softmax(scale q k^T + bias) v over the keys j <= i, exact, with gradients to all four.

    q [B, H, T, D], k and v [B, G, T, D] with G a divisor of H, bias [B, T, T] in nats, shared by the heads and read
    on and below the diagonal only -> out [B, H, T, D]. `scale` is 1/sqrt(D) unless given. Computes in float32 at least.
    """
    kind = torch.promote_types(q.dtype, torch.float32)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    with torch.autocast(q.device.type, enabled=False):
        return _Biased.apply(q.to(kind), k.to(kind), v.to(kind), bias.to(kind), scale).to(q.dtype)


class _Biased(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, bias, scale):
        batch, heads, length, size = q.shape
        out, kept = torch.empty_like(q), []
        for start in range(0, length, BLOCK):
            stop = min(start + BLOCK, length)
            scores = _fold(q[:, :, start:stop], k) @ k[:, :, :stop].transpose(2, 3)  # [B, G, r n, used]
            scores = scores.view(batch, heads, stop - start, stop).mul_(scale).add_(bias[:, None, start:stop, :stop])
            future = torch.ones(stop - start, stop - start, dtype=torch.bool, device=q.device).triu_(1)
            scores[..., start:].masked_fill_(future, float("-inf"))
            kept.append(torch.softmax(scores, dim=-1))
            out[:, :, start:stop] = (_fold(kept[-1], k) @ v[:, :, :stop]).view(batch, heads, -1, size)
        ctx.save_for_backward(q, k, v, out, *kept)
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx, gradient):
        q, k, v, out, *kept = ctx.saved_tensors
        batch, heads, length, size = q.shape
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        dbias = q.new_zeros(batch, length, length) if ctx.needs_input_grad[3] else None
        through = (gradient * out).sum(-1, keepdim=True)  # [B, H, T, 1]
        for start, probabilities in zip(range(0, length, BLOCK), kept, strict=True):
            rows, stop = slice(start, start + BLOCK), min(start + BLOCK, length)
            arriving = _fold(gradient[:, :, rows], k)  # [B, G, r n, D]
            dscores = (arriving @ v[:, :, :stop].transpose(2, 3)).view_as(probabilities)
            dscores.sub_(through[:, :, rows]).mul_(probabilities)
            if dbias is not None:
                torch.sum(dscores, dim=1, out=dbias[:, rows, :stop])
            folded = _fold(dscores.mul_(ctx.scale), k)
            dq[:, :, rows] = (folded @ k[:, :, :stop]).view(batch, heads, -1, size)
            dk[:, :, :stop] += folded.transpose(2, 3) @ _fold(q[:, :, rows], k)
            dv[:, :, :stop] += _fold(probabilities, k).transpose(2, 3) @ arriving
        return dq, dk, dv, dbias, None


def _fold(x: Tensor, k: Tensor) -> Tensor:
    """[B, H, n, ...] -> [B, G, r n, ...]: the r query heads of a key head one after the other."""
    return x.reshape(x.shape[0], k.shape[1], -1, x.shape[-1])
