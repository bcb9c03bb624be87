"""Grouped attention on the CPU by a program of our own, `compiled.cpp`, where a C++ compiler is at hand: in float32,
and in bfloat16 on processors that multiply tiles of it (AMX).

Torch's kernel computes a causal call in stretches of 512 keys, so a group of 512 tokens costs twice its pairs, and the
window needs a bias, a merge and their temporaries. Here the scores of a block of 24 or 32 queries never leave the
cache, no pair is computed much beyond those that are kept, and the window goes on from where the groups ended: a
softmax carried from block to block in float32, no merge. A thread takes a head; none of OpenMP, so processes beside it
wait for nobody.
"""

from ctypes import POINTER, Structure, byref, c_float, c_long, c_void_p
from functools import partial

import torch
from torch import Tensor

from .. import native
from ..members import bit_sets
from ..parts import part
from . import of_heads

# A bit each, and a sign.
MOST_GROUPS = 31
MOST_SINKS = 256  # a block of keys
BLOCK = 24  # queries at once
# Of text, head and row.
Strides = c_long * 3


class Call(Structure):
    """What is asked, as `Call` of `compiled.cpp` has it."""

    _fields_ = [
        *((name, c_void_p) for name in ("q", "k", "v", "out", "kept", "lse", "sum", "sink_logits")),
        *((f"{name}_to", Strides) for name in ("q", "k", "v", "out", "kept")),
        *((name, c_void_p) for name in ("tokens", "ends", "sets")),
        *((name, c_long) for name in ("texts", "heads", "repeat", "length", "size", "groups", "window", "sinks")),
        ("scale", c_float),
    ]


programs = partial(native.programs, "grouped", POINTER(Call), c_long, c_long, c_long)


def runs(dtype: torch.dtype, groups: int, head_dim: int) -> bool:
    """Whether such calls are computed here: a type that this processor and its compiler give a program for, not too
    many groups, and of bfloat16, which comes in pairs, an even head."""
    even = dtype == torch.float32 or head_dim % 2 == 0
    return even and groups <= MOST_GROUPS and dtype in programs()


def groups(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    members: Tensor,
    window: int,
    scale: float,
    n_sink: int = 0,
    sink_logits: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """As `packed.grouped`, with at most MOST_SINKS first tokens for all and learned sinks [H]: q [B, H, T, D], k and v
    [B, G, T, D], members bool [B, T, K] -> (out as q, lse [B, H, T]). Errors: MemoryError."""
    batch, heads, length, size = q.shape
    program, out, lse = programs()[q.dtype], torch.empty_like(q), torch.empty(q.shape[:3])
    sums, count = torch.empty_like(lse), members.shape[2]
    # what is summed up, in float32 whatever the type
    kept = out if q.dtype == torch.float32 else torch.empty(q.shape)
    with part("sort"):
        sets = bit_sets(members).to(torch.int32).contiguous()  # [B, T]
        tokens = members.transpose(1, 2).nonzero()[:, 2].to(torch.int32)  # sorted by text, group and time
        ends = members.sum(1).flatten().cumsum(0).to(torch.int32)  # [B * K]
    sinks = of_heads(sink_logits)
    call = Call(
        *(x.data_ptr() for x in (q, k, v, out, kept, lse, sums)),
        None if sinks is None else sinks.data_ptr(),
        *(Strides(*x.stride()[:3]) for x in (q, k, v, out, kept)),
        *(x.data_ptr() for x in (tokens, ends, sets)),
        *(batch, heads, heads // k.shape[1], length, size, count, min(window, length), min(n_sink, length)),
        scale,
    )
    threads = min(torch.get_num_threads(), batch * heads)
    for name, first, last in (("set_a", 0, count), ("set_b", count, count + 1)):
        with part(name):
            if program(byref(call), first, last, threads):
                raise MemoryError("Grouped attention was refused memory.")
    return out, lse
