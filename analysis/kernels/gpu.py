"""Grouped attention on an NVIDIA GPU: all groups side by side in one call, then one kernel for the window.

The groups of all texts are a batch, each as long as the longest: padding stands behind a group's tokens, where a causal
call never reads it, so torch's quickest dense kernel computes them. `strangers` goes on from its output and logsumexp
with the keys of the window that share no group: an online softmax that begins with what the group gave, so that nothing
is merged in memory.
"""

import functools
import importlib.util

import torch
from torch import Tensor

from .dense import dense_with_lse
from .members import bit_sets
from .parts import part

# Groups are padded where that computes at most so many times the pairs: a packed call of torch takes so much longer for
# a pair than its dense call (H200: 270 and 620 TFLOP/s).
PADDING = 2.0
# Queries and keys of a tile of the window.
ROWS, KEYS = 64, 64


@functools.cache
def has_triton() -> bool:
    """Whether the kernel of the window can be compiled here."""
    return importlib.util.find_spec("triton") is not None


def padded_length(longest: int) -> int:
    """The next of few lengths, 64 or more and at most an eighth longer: cuDNN plans every shape anew, which takes as
    long as hundreds of calls."""
    step = max(64, 1 << max(0, longest.bit_length() - 4))
    return max(1, -(-longest // step)) * step


def side_by_side(
    q: Tensor, k: Tensor, v: Tensor, members: Tensor, longest: int, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Causal attention inside each group: q [B, H, T, D], k and v [B, G, T, D], members bool [B, T, K] with at most one
    group a token, none of more than `longest` -> (out [S, H, D], lse [H, S], slot int64 [B, T]: a token's row of them,
    -1 for one without a group)."""
    batch, length, groups = members.shape
    with part("sort"):
        longest = padded_length(longest)
        # Along the last dimension: along another one a GPU scans with a single thread.
        by_count = members.transpose(1, 2).contiguous()
        place = (by_count.cumsum(-1, dtype=torch.int32) * by_count).sum(1) - 1
        group = members.to(torch.uint8).argmax(-1) + groups * torch.arange(batch, device=q.device)[:, None]
        slots = batch * groups * longest
        slot = torch.where(place < 0, slots, group * longest + place)
        tokens = torch.zeros(slots + 1, dtype=torch.int64, device=q.device)
        tokens.scatter_(0, slot.flatten(), torch.arange(batch * length, device=q.device))
        queries, keys, values = (
            x.transpose(1, 2).flatten(0, 1).index_select(0, tokens[:-1]).unflatten(0, (-1, longest)).transpose(1, 2)
            for x in (q, k, v)
        )
    with part("set_a"):
        out, lse = dense_with_lse(queries, keys, values, None, True, scale)
        out, lse = out.transpose(1, 2).flatten(0, 1), lse.transpose(0, 1).flatten(1)
    return out, lse, slot.masked_fill(place < 0, -1)


def strangers(
    q: Tensor, k: Tensor, v: Tensor, members: Tensor, window: int, scale: float, far: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """Add the keys less than `window` back that share no group with their query: `far` (out [S, H, D], lse [H, S], slot
    [B, T]) as `side_by_side` gives it -> (out [B, H, T, D], lse float32 [B, H, T])."""
    # Imported where there is a GPU only: elsewhere Triton is not installed.
    from . import strangers as triton

    far_out, far_lse, slot = far
    batch, heads, length, size = q.shape
    out = torch.empty_like(q)
    lse = torch.empty(batch, heads, length, device=q.device)
    far_lse, sets = far_lse.contiguous(), bit_sets(members)
    triton.strangers[triton.cdiv(length, ROWS), batch * heads](
        *(q, k, v, sets, slot.contiguous(), far_out, far_lse, out, lse),
        *(stride for x in (q, k, v, out) for stride in x.stride()[:3]),
        *(far_out.stride(0), far_out.stride(1), far_lse.stride(0)),
        *(length, heads, heads // k.shape[1], window, scale),
        SIZE=size,
        WIDE=triton.next_power_of_2(max(16, size)),
        ROWS=ROWS,
        KEYS=KEYS,
    )
    return out, lse
