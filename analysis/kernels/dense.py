"""Dense attention by torch's own kernels: with its logsumexp, and with the learned sinks of heads."""

import functools
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..errors import BadSetting
from .merge import with_sink_logits
from .pool import accelerated

flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
HALVES = (torch.bfloat16, torch.float16)
# cuDNN plans every new shape for 20 to 50 ms, so short calls and single queries go elsewhere; the largest of its heads.
CUDNN_LENGTH, CUDNN_SIZE = 1024, 128
WITHOUT_CUDNN = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def dense(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float,
    dropout: float = 0.0,
    sink_logits: Tensor | None = None,
) -> Tensor:
    """q [B, H, n, D], k [B, G, T, D] and v [B, G, T, Dv] -> [B, H, n, Dv]; `mask` bool [B, 1 or H, n, T], True = read.

    `causal` aligns the first query with the first key, and has no mask beside it. `sink_logits` [H] or [B, H]: learned
    sinks, one more term of every sum; `takes_sinks` says where they can be. Errors: BadSetting where they cannot.
    """
    grouped = q.shape[1] != k.shape[1]
    if sink_logits is None:
        short = accelerated(q) and q.shape[2] < CUDNN_LENGTH
        about: dict[str, Any] = {"is_causal": causal, "scale": scale, "enable_gqa": grouped}
        with sdpa_kernel(WITHOUT_CUDNN) if short else nullcontext():
            return F.scaled_dot_product_attention(q, k, v, mask, dropout, **about)
    if not takes_sinks(q, v, sink_logits, dropout):
        raise BadSetting(
            "Torch's kernels give no gradient, no dropout and no other size of values beside learned sinks: use "
            "torch.no_grad(), or the masked pass."
        )
    bias = None if mask is None else never(~mask, q)
    return with_sink_logits(*dense_with_lse(q, k, v, bias, causal, scale), sink_logits)[0]


def takes_sinks(q: Tensor, v: Tensor, sink_logits: Tensor, dropout: float) -> bool:
    """Whether `dense` computes these queries and values beside learned sinks: it needs the logsumexp of a kernel, which
    has no gradient."""
    learned = torch.is_grad_enabled() and (q.requires_grad or sink_logits.requires_grad)
    return dropout == 0 and not learned and q.shape[-1] == v.shape[-1]


def dense_with_lse(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """q [B, H, n, D], k and v [B, G, T, D]; `bias` [B, 1 or H, n, T] of q's type, beside which nothing is causal ->
    (out [B, H, n, D], lse [B, H, n])."""
    if not accelerated(q):
        bias = None if bias is None else bias.expand(*q.shape[:2], -1, -1)
        return flash(q, k, v, 0.0, causal, attn_mask=bias, scale=scale)
    if bias is None and q.dtype in HALVES and q.shape[-1] <= CUDNN_SIZE and q.shape[2] >= CUDNN_LENGTH and hopper():
        run = torch.ops.aten._scaled_dot_product_cudnn_attention
        out, lse = run(q, k, v, None, True, 0.0, causal, False, scale=scale)[:2]
        return out, lse.view(q.shape[:3])
    if bias is None and q.dtype in HALVES and q.shape[-1] % 8 == 0:
        return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, False, scale=scale)[:2]
    # This kernel takes as many heads of keys as of queries.
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    if bias is not None:
        # rows of a bias must begin aligned
        bias = F.pad(bias, (0, -bias.shape[-1] % 16))[..., : k.shape[2]].expand(*q.shape[:2], -1, -1)
    run = torch.ops.aten._scaled_dot_product_efficient_attention
    out, lse = run(q, k, v, bias, True, 0.0, causal, scale=scale)[:2]
    return out, lse[..., : q.shape[2]].float()


@functools.cache
def hopper() -> bool:
    """Whether cuDNN's attention is the quickest of torch's here: H100 and later, by a factor of 2.2 over its flash."""
    return torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0)


def never(skip: Tensor, like: Tensor) -> Tensor:
    """A bias under which `skip` weighs nothing, else 0. Not -inf, of which the CPU's kernel makes rows with lse 0."""
    # multiplied: ten times faster than a where
    return skip.view(torch.uint8).to(like.dtype).mul_(max(-1e30, torch.finfo(like.dtype).min))
