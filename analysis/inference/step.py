"""Timing one decode step of attention: appending a token and reading its groups, against reading everything."""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import sdpa_kernel

from analysis.groups.controls import random_tokens
from analysis.kernels.decode import GroupMajor, Growing
from analysis.timing import CANDIDATES, Timing, clock


@dataclass(frozen=True)
class DecodeTime:
    """One decode step of attention, sparse against dense, at a cache of `length` tokens; seconds, and the bytes of keys
    and values each side reads (the mean over steps). `bound` dense bytes by sparse ones."""

    length: int
    dtype: str
    kernel: str
    dense_kernel: str
    dense: Timing
    sparse: Timing
    speedup: Timing
    dense_bytes: int
    sparse_bytes: int
    bound: float


@torch.no_grad()
def time_decode(
    length: int,
    heads: int,
    head_dim: int,
    groups: int,
    window: int,
    k: int = 1,
    dtype: str = "bfloat16",
    kv_heads: int | None = None,
    repeats: int = 20,
    device: str = "auto",
    n_sink: int = 0,
    members: Tensor | None = None,
    progress: Callable[[float, str], None] | None = None,
    seed: int = 0,
) -> DecodeTime:
    """Time a step that appends one token and reads: unit-normal keys, `members` bool [T, K] or k random groups each.

    Dense reads all of a preallocated cache with torch's quickest kernel for a single query.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else torch.device(device)
    kind, kv_heads, draw = getattr(torch, dtype), kv_heads or heads, torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw).to(device, kind)

    keys, values, q = (normal(1, *shape, head_dim) for shape in ((kv_heads, length), (kv_heads, length), (heads, 1)))
    members = (random_tokens(length, groups, k, seed) if members is None else members).to(device)
    new, coming = normal(1, kv_heads, 1, head_dim), cycle(members)
    text = GroupMajor(keys, values, members, window, n_sink)
    plain = Growing(keys, spare=repeats + 99), Growing(values, spare=repeats + 99)

    read = []

    def sparse():
        text.put(new, new, next(coming))
        text.attend(q, head_dim**-0.5)
        read.append(text.read_bytes)

    def dense():
        for buffer in plain:
            buffer.put(new)
        rows = (buffer.rows for buffer in plain)
        F.scaled_dot_product_attention(q, *rows, enable_gqa=heads != kv_heads)

    name = quickest(dense)
    with sdpa_kernel(CANDIDATES[name]):
        timed = clock({"dense": dense, "sparse": sparse}, repeats, progress)
    held, each = sum(buffer.rows.nbytes for buffer in plain), sum(read) // len(read)
    return DecodeTime(
        *(length, dtype, "group-major cache", name),
        **timed,
        speedup=timed["dense"].over(timed["sparse"]),
        **{"dense_bytes": held, "sparse_bytes": each, "bound": held / each},
    )


def quickest(dense: Callable[[], object]) -> str:
    """The name of torch's kernel that runs this fastest."""
    best = math.inf, ""
    for name, backend in CANDIDATES.items():
        with suppress(RuntimeError), sdpa_kernel(backend):
            best = min(best, (clock({name: dense}, 3)[name].low, name))
    return best[1]
