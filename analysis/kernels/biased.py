"""Attention whose scores a gate changes, the same for all heads, with a gradient to the gate: what training needs.

A gate of the form s + log(gate) is a bias of the scores, one of the form s * gate a factor. Without this kernel its
training pass holds a dozen tensors [B, H, T, T] per layer; here only the probabilities of the causal half are kept.
"""

from typing import Any

import torch
from torch import Tensor

from .scoring import softmax

# Queries at once: above the diagonal block nothing is computed, and the block stays in the cache.
BLOCK = 128


def biased_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gate: Tensor,
    scale: float | None = None,
    multiply: bool = False,
    sink_logits: Tensor | None = None,
) -> Tensor:
    """softmax(scale q k^T + gate) v over the keys j <= i, exact, in float32 at least, with gradients to all of them.

    q [B, H, T, D], k and v [B, G, T, D] with G a divisor of H, gate [B, T, T] in nats, shared by the heads and read on
    and below the diagonal only -> out [B, H, T, D]. -inf in the gate leaves a key out; the token itself must stay. With
    `multiply` the scores are scale q k^T * gate, and the gate must be finite. `scale`: 1/sqrt(D) unless given.
    `sink_logits` [H]: learned sinks, one more term of every sum that no gate changes.
    """
    kind = torch.promote_types(q.dtype, torch.float32)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    with torch.autocast(q.device.type, enabled=False):
        states = (x if x is None else x.to(kind) for x in (q, k, v, gate, sink_logits))
        return _Biased.apply(*states, scale, multiply).to(q.dtype)


class _Biased(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, gate: Tensor, sinks: Tensor | None, scale: float, multiply: bool
    ) -> Tensor:
        batch, heads, length, size = q.shape
        out, blocks_of_weights = torch.empty_like(q), []
        for start in range(0, length, BLOCK):
            stop = min(start + BLOCK, length)
            scores = _scores(q, k, start, stop).mul_(scale)
            part = gate[:, None, start:stop, :stop]
            scores = scores.mul_(part) if multiply else scores.add_(part)
            future = torch.ones(stop - start, stop - start, dtype=torch.bool, device=q.device).triu_(1)
            scores[..., start:].masked_fill_(future, float("-inf"))
            probabilities = softmax(scores, sinks)
            out[:, :, start:stop] = (_fold(probabilities, k) @ v[:, :, :stop]).view(batch, heads, -1, size)
            if any(ctx.needs_input_grad):
                blocks_of_weights.append(probabilities)
        ctx.save_for_backward(q, k, v, gate if multiply else None, out, *blocks_of_weights)
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, factor, out, *blocks_of_weights = ctx.saved_tensors
        batch, heads, length, size = q.shape
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        dgate = q.new_zeros(batch, length, length) if ctx.needs_input_grad[3] else None
        dsinks = q.new_zeros(heads) if ctx.needs_input_grad[4] else None
        through = (gradient * out).sum(-1, keepdim=True)  # [B, H, T, 1]
        for start, probabilities in zip(range(0, length, BLOCK), blocks_of_weights, strict=True):
            rows, stop = slice(start, start + BLOCK), min(start + BLOCK, length)
            arriving = _fold(gradient[:, :, rows], k)  # [B, G, r n, D]
            dscores = (arriving @ v[:, :, :stop].transpose(2, 3)).view_as(probabilities)
            dscores.sub_(through[:, :, rows]).mul_(probabilities)
            if dsinks is not None:
                # a term of the sum without a value
                dsinks -= ((1 - probabilities.sum(-1, keepdim=True)) * through[:, :, rows]).sum((0, 2, 3))
            if dgate is not None and factor is None:
                torch.sum(dscores, dim=1, out=dgate[:, rows, :stop])
            elif dgate is not None:
                reached = _scores(q, k, start, stop).mul_(dscores)  # once more, instead of keeping them
                torch.sum(reached, dim=1, out=dgate[:, rows, :stop]).mul_(ctx.scale)
            if factor is not None:
                dscores.mul_(factor[:, None, rows, :stop])
            folded = _fold(dscores.mul_(ctx.scale), k)
            dq[:, :, rows] = (folded @ k[:, :, :stop]).view(batch, heads, -1, size)
            dk[:, :, :stop] += folded.transpose(2, 3) @ _fold(q[:, :, rows], k)
            dv[:, :, :stop] += _fold(probabilities, k).transpose(2, 3) @ arriving
        return dq, dk, dv, dgate, dsinks, None, None


def _scores(q: Tensor, k: Tensor, start: int, stop: int) -> Tensor:
    """q k^T of the queries from `start` to `stop` and the keys before `stop`, a new tensor [B, H, n, stop]."""
    return (_fold(q[:, :, start:stop], k) @ k[:, :, :stop].transpose(2, 3)).view(*q.shape[:2], stop - start, stop)


def _fold(x: Tensor, k: Tensor) -> Tensor:
    """[B, H, n, ...] -> [B, G, r n, ...]: the r query heads of a key head one after the other."""
    return x.reshape(x.shape[0], k.shape[1], -1, x.shape[-1])
