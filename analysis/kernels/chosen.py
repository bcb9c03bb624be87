"""Exact attention of a prompt whose queries each choose units of keys for themselves, beside the newest and the first
keys: by `native/chosen.cpp`. What no query chose is not touched, no mask is made, and nothing is gathered.

`block_attention` takes maps by blocks of queries; here neighbours read other keys, so a map has a row for each query,
and is kept as the list of what it reads.
"""

from ctypes import POINTER, Structure, byref, c_float, c_long, c_void_p
from functools import partial

import numpy as np
import torch
from torch import Tensor

from . import native
from .jit import jit
from .native import of_heads
from .native.compiled import Strides
from .pool import accelerated, each

# Rows of scores that a thread takes at once.
ROWS = 1024


def best_units(scores: Tensor, count: int) -> Tensor:
    """The `count` largest of each row of scores [S, n, U], -inf never: int32 [S, n, count], -1 where there are fewer.
    Of equal scores the earlier are taken, however many rows there are; `topk` promises no order."""
    count = min(count, scores.shape[-1])
    if accelerated(scores):
        ordered = scores.sort(stable=True, dim=-1, descending=True)
        places = ordered.indices[..., :count].masked_fill(ordered.values[..., :count].isneginf(), -1)
        return places.to(torch.int32)
    flat = scores.detach().float().flatten(0, -2).contiguous()
    best = torch.full((len(flat), count), -1, dtype=torch.int32)
    parts = range(0, len(flat), ROWS)
    each(lambda start: _largest(flat[start : start + ROWS].numpy(), best[start : start + ROWS].numpy()), parts)
    return best.view(*scores.shape[:-1], count)


@jit()
def _largest(scores: np.ndarray, best: np.ndarray) -> None:
    """Fills best [n, c] with the places of the c largest of each row [n, U], the largest first, of equals the earlier;
    -inf is never one."""
    count = best.shape[1]
    values = np.empty(count, np.float32)
    for row in range(len(scores)):
        values[:] = -np.inf
        least = np.float32(-np.inf)
        for place in range(scores.shape[1]):
            value = scores[row, place]
            if value > least:
                slot = count - 1
                while slot > 0 and values[slot - 1] < value:
                    values[slot], best[row, slot] = values[slot - 1], best[row, slot - 1]
                    slot -= 1
                values[slot], best[row, slot] = value, place
                least = values[count - 1]


class _Call(Structure):
    _fields_ = [
        *((name, c_void_p) for name in ("q", "k", "v", "out", "chosen", "sink_logits")),
        *((f"{name}_to", Strides) for name in ("q", "k", "v", "out")),
        *((name, c_long) for name in ("texts", "heads", "repeat", "selections", "length", "past", "size")),
        *((name, c_long) for name in ("count", "unit", "window", "sinks")),
        ("scale", c_float),
    ]


programs = partial(native.programs, "chosen", POINTER(_Call), c_long)


def runs(q: Tensor) -> bool:
    """Whether the program takes these queries: float32 or bfloat16 on the CPU, and a compiler that built it."""
    return not accelerated(q) and q.dtype in programs()


@torch.no_grad()
def chosen_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    chosen: Tensor,
    unit: int,
    window: int,
    n_sink: int,
    scale: float,
    sink_logits: Tensor | None = None,
) -> Tensor:
    """Attention of the last n of T tokens to the keys of the units that each chose, to its own unit, the last `window`
    tokens and the first `n_sink`, causal, exact.

    q [B, H, n, D], k and v [B, G, T, D] with G a divisor of H; chosen int32 [B, S, n, c], the numbers of units of
    `unit` keys, -1 for none and no number twice, S a divisor of H: H / S neighbouring heads read alike. `sink_logits`
    [H]: learned sinks, one more term of every sum -> as q. Errors: MemoryError.
    """
    batch, heads, length, size = q.shape
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    chosen, out, sinks = chosen.to(torch.int32).contiguous(), torch.empty_like(q), of_heads(sink_logits)
    call = _Call(
        *(x.data_ptr() for x in (q, k, v, out, chosen)),
        None if sinks is None else sinks.data_ptr(),
        *(Strides(*x.stride()[:3]) for x in (q, k, v, out)),
        *(batch, heads, heads // k.shape[1], chosen.shape[1], length, k.shape[2] - length, size),
        *(chosen.shape[3], unit, window, n_sink),
        scale,
    )
    if programs()[q.dtype](byref(call), min(torch.get_num_threads(), batch * heads)):
        raise MemoryError("Attention to chosen keys was refused memory.")
    return out
