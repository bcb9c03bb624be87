"""Attention whose scores a gate changes, the same for all heads, with a gradient to what the gate is made of: what
training needs.

A gate of the form s + log(gate) is a bias of the scores, one of the form s * gate a factor. Nothing of [T, T] is held:
queries go block by block, and the way back makes gate and probabilities of a block once more.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .pool import AT_ONCE, accelerated
from .scoring import softmax

# Queries at once: above the diagonal block nothing is computed, and the block stays in the cache.
BLOCK = 128
# Tensors of a block's scores that the way back holds at once.
SCORES = 8

# (features [B, T, ...], first query, query behind the last) -> gate of these queries and the keys before the last [B,
# n, stop].
Gate = Callable[[Tensor, int, int], Tensor]


def biased_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    features: Tensor,
    gate: Gate,
    scale: float | None = None,
    multiply: bool = False,
    sink_logits: Tensor | None = None,
) -> Tensor:
    """softmax(scale q k^T + gate) v over the keys j <= i, exact, in float32 at least, with gradients to all of them.

    q [B, H, T, D], k and v [B, G, T, D] with G a divisor of H -> out [B, H, T, D]. `gate(features, start, stop)` in
    nats, of features [B, T, ...] of the tokens, shared by the heads and read on and below the diagonal only; what it
    holds beside them gets no gradient. -inf in it leaves a key out; the token itself must stay. With `multiply` the
    scores are scale q k^T * gate, and the gate must be finite. `scale`: 1/sqrt(D) unless given. `sink_logits` [H]:
    learned sinks, one more term of every sum that no gate changes.
    """
    kind = torch.promote_types(q.dtype, torch.float32)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    with torch.autocast(q.device.type, enabled=False):
        states = (x if x is None else x.to(kind) for x in (q, k, v, features, sink_logits))
        return _Biased.apply(*states, gate, scale, multiply).to(q.dtype)


class _Biased(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        features: Tensor,
        sinks: Tensor | None,
        gate: Gate,
        scale: float,
        multiply: bool,
    ) -> Tensor:
        out = torch.empty_like(q)
        for start, stop in _blocks(q):
            scores = _gated(_scores(q, k, start, stop, scale), gate(features, start, stop)[:, None], start, multiply)
            read = _fold(softmax(scores, sinks), k) @ v[:, :, :stop]
            out[:, :, start:stop] = read.view(*q.shape[:2], -1, q.shape[-1])
        ctx.save_for_backward(q, k, v, features, sinks, out)
        ctx.about = gate, scale, multiply
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, features, sinks, out = ctx.saved_tensors
        gate, scale, multiply = ctx.about
        learns = ctx.needs_input_grad[3]
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        dfeatures = torch.zeros_like(features) if learns else None
        dsinks = q.new_zeros(q.shape[1]) if ctx.needs_input_grad[4] else None
        through = (gradient * out).sum(-1, keepdim=True)  # [B, H, T, 1]
        for start, stop in _blocks(q):
            rows = slice(start, stop)
            with torch.set_grad_enabled(learns):
                source = features.detach().requires_grad_(learns)
                part = gate(source, start, stop)  # [B, n, stop]
            bias = part.detach()[:, None]
            scores = _scores(q, k, start, stop, scale)
            ungated = scores.clone() if multiply and learns else None
            probabilities = softmax(_gated(scores, bias, start, multiply), sinks)
            arriving = _fold(gradient[:, :, rows], k)  # [B, G, r n, D]
            dscores = (arriving @ v[:, :, :stop].transpose(2, 3)).view_as(probabilities)
            dscores.sub_(through[:, :, rows]).mul_(probabilities)
            if dsinks is not None:
                # a term of the sum without a value
                dsinks -= ((1 - probabilities.sum(-1, keepdim=True)) * through[:, :, rows]).sum((0, 2, 3))
            if dfeatures is not None:
                reached = (dscores if ungated is None else ungated.mul_(dscores)).sum(1)
                dfeatures += torch.autograd.grad(part, source, reached)[0]
            if multiply:
                dscores.mul_(bias)
            folded = _fold(dscores.mul_(scale), k)
            dq[:, :, rows] = (folded @ k[:, :, :stop]).view(*q.shape[:2], -1, q.shape[-1])
            dk[:, :, :stop] += folded.transpose(2, 3) @ _fold(q[:, :, rows], k)
            dv[:, :, :stop] += _fold(probabilities, k).transpose(2, 3) @ arriving
        return dq, dk, dv, dfeatures, dsinks, None, None, None


def _blocks(q: Tensor) -> list[tuple[int, int]]:
    """First query and query behind the last of each block. An accelerator takes as many queries as memory allows: with
    blocks of 128 a step of training starts more than twice as many kernels, and starting them is what takes long."""
    texts, heads, length, _ = q.shape
    rows = max(BLOCK, AT_ONCE // (SCORES * 4 * texts * heads * length)) if accelerated(q) else BLOCK
    return [(start, min(start + rows, length)) for start in range(0, length, rows)]


def _scores(q: Tensor, k: Tensor, start: int, stop: int, scale: float) -> Tensor:
    """Scaled scores of the queries from `start` to `stop` and the keys before `stop`, a new tensor [B, H, n, stop]."""
    products = _fold(q[:, :, start:stop], k) @ k[:, :, :stop].transpose(2, 3)
    return products.view(*q.shape[:2], stop - start, stop).mul_(scale)


def _gated(scores: Tensor, gate: Tensor, start: int, multiply: bool) -> Tensor:
    """The same scores [B, H, n, stop] through the gate [B, 1, n, stop], what is ahead of a query left out."""
    scores = scores.mul_(gate) if multiply else scores.add_(gate)
    queries = scores.shape[2]
    future = torch.ones(queries, queries, dtype=torch.bool, device=scores.device).triu_(1)
    scores[..., start:].masked_fill_(future, float("-inf"))
    return scores


def _fold(x: Tensor, k: Tensor) -> Tensor:
    """[B, H, n, ...] -> [B, G, r n, ...]: the r query heads of a key head one after the other."""
    return x.reshape(x.shape[0], k.shape[1], -1, x.shape[-1])
