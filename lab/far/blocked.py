"""Causal attention for training on a CPU, in blocks of queries.

PyTorch's own kernel works through small tiles; here every step is one large product or one fused softmax: forward and
backward take half of its time at 256 tokens and four fifths at 2,048 (bfloat16, heads of 64, one thread of a Zen 4).
Scores are rounded to the type of the model's products, as in any eager model.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AttentionInterface, PreTrainedModel

from analysis.seam.layers import attention_as

BLOCK = 128  # queries at a time
NAME = "blocked"


class Blocked(torch.autograd.Function):
    """q [N, G, T, D] (scaled), k and v [N, T, D], all of one type, G query heads of a key head -> [N, G, T, D]."""

    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Softmax of causal scores times values."""
        out = torch.empty_like(q)
        for first, last in blocks(q.shape[2]):
            weights = weights_of(q, k, first, last)
            rows = torch.bmm(weights, v[:, :last])
            out[:, :, first:last] = rows.view(q.shape[0], q.shape[1], last - first, -1)
        ctx.save_for_backward(q, k, v)
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Gradients; the weights are computed again, block by block."""
        q, k, v = ctx.saved_tensors
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for first, last in blocks(q.shape[2]):
            size, weights = last - first, weights_of(q, k, first, last)  # [N, G * size, last]
            rows = grad[:, :, first:last].reshape(q.shape[0], -1, q.shape[3])
            grad_v[:, :last].baddbmm_(weights.transpose(1, 2), rows)
            back = torch.bmm(rows, v[:, :last].transpose(1, 2))
            back = torch._softmax_backward_data(back, weights, -1, weights.dtype)
            grad_q[:, :, first:last] = torch.bmm(back, k[:, :last]).view(q.shape[0], q.shape[1], size, -1)
            grad_k[:, :last].baddbmm_(back.transpose(1, 2), q[:, :, first:last].reshape(q.shape[0], -1, q.shape[3]))
        return grad_q, grad_k, grad_v


def blocks(length: int) -> list[tuple[int, int]]:
    """(first, past the last) query of each block."""
    return [(first, min(first + BLOCK, length)) for first in range(0, length, BLOCK)]


def weights_of(q: torch.Tensor, k: torch.Tensor, first: int, last: int) -> torch.Tensor:
    """Weights of the queries of a block on all keys up to its last, [N, G * (last - first), last]."""
    size = last - first
    rows = q[:, :, first:last].reshape(q.shape[0], -1, q.shape[3])
    scores = torch.bmm(rows, k[:, :last].transpose(1, 2))
    later = torch.ones(size, size, dtype=torch.bool).triu(1)
    scores.view(q.shape[0], q.shape[1], size, last)[..., first:].masked_fill_(later, -torch.inf)
    return torch.softmax(scores, -1)


def blocked_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    **more: Any,
) -> tuple[torch.Tensor, None]:
    """Attention function of transformers: query [B, H, T, D], key and value [B, G, T, D] -> ([B, T, H, D], None).

    Causal, without padding and dropout: for rows that are full.
    """
    batch, heads, length, size = query.shape
    groups = key.shape[1]
    q = (query.float() * scaling).to(value.dtype).reshape(batch * groups, heads // groups, length, size)
    k, v = (part.to(value.dtype).reshape(batch * groups, length, size) for part in (key, value))
    out = Blocked.apply(q, k, v)
    return out.view(batch, heads, length, size).transpose(1, 2).contiguous(), None


@contextmanager
def blocked(model: PreTrainedModel) -> Iterator[None]:
    """Inside, a model on the CPU trains with this attention; on exit it is as it was. Elsewhere nothing changes."""
    if model.device.type == "cpu" and model.config.model_type != "gpt2":
        AttentionInterface.register(NAME, blocked_attention)
        with attention_as(model, NAME):
            yield
    else:
        yield
