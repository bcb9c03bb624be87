"""One query over buffers of keys and values: by `one_query.cpp` where a C++ compiler is at hand, else by torch.

A step of generation calls attention once a layer for one token, so what counts is the bytes read and the number of
calls: the program is one call, without the temporaries of torch's.
"""

import functools
from collections.abc import Callable, Sequence
from ctypes import POINTER, Structure, byref, c_float, c_int, c_int64, c_long, c_void_p
from typing import NamedTuple

import torch
from torch import Tensor

from .library import library, of_heads
from .pool import accelerated
from .scoring import softmax

# Bytes that a thread reads before another is worth making.
ALONE = 1 << 20


class Read(NamedTuple):
    """Keys and values [1, G, n, D], whole numbers [n] or [H, n] whose bits say something of their tokens, and the bits
    of those that are not read."""

    keys: Tensor
    values: Tensor
    sets: Tensor
    skip: int


class _Part(Structure):
    _fields_ = [
        *((name, c_void_p) for name in ("keys", "values", "sets")),
        *((name, c_long) for name in ("rows", "k_head", "k_row", "v_head", "v_row", "set_head", "set_bytes")),
        ("skip", c_int64),
    ]


class _Query(Structure):
    _fields_ = [
        *((name, c_void_p) for name in ("q", "out", "lse", "sink_logits")),
        *((name, c_long) for name in ("heads", "repeat", "size")),
        ("scale", c_float),
    ]


def compiled(q: Tensor) -> bool:
    """Whether the program takes this query: float32 or bfloat16 on the CPU, and a compiler that built it."""
    return not accelerated(q) and not torch.is_grad_enabled() and q.dtype in programs()


def attend(q: Tensor, parts: Sequence[Read], scale: float, sink_logits: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """q [1, H, 1, D] over all parts, beside learned sinks [H] -> (out as q, lse [1, H, 1] in float32 or better); 0 and
    -inf where nothing is read. Errors: MemoryError."""
    if not compiled(q):
        return _by_torch(q, parts, scale, sink_logits)
    heads, kv_heads, size = q.shape[1], parts[0].keys.shape[1], q.shape[-1]
    q, program = q.contiguous(), programs()[q.dtype]
    out, lse = torch.empty_like(q), torch.empty(1, heads, 1)
    sinks = of_heads(sink_logits)
    of_sinks = None if sinks is None else sinks.data_ptr()
    query = _Query(q.data_ptr(), out.data_ptr(), lse.data_ptr(), of_sinks, heads, heads // kv_heads, size, scale)
    addresses = (_Part * len(parts))(*map(_part, parts))
    bytes_read = sum(2 * part.keys.numel() * part.keys.element_size() for part in parts)
    threads = max(1, min(torch.get_num_threads(), kv_heads, bytes_read // ALONE))
    if program(byref(query), addresses, len(parts), threads):
        raise MemoryError("A step of attention was refused memory.")
    return out, lse


def _by_torch(q: Tensor, parts: Sequence[Read], scale: float, sink_logits: Tensor | None) -> tuple[Tensor, Tensor]:
    """One softmax over the scores of all parts, what is not read masked."""
    exact = torch.promote_types(q.dtype, torch.float32)
    # Scores rounded to 16 bits move a result by 2 % and more. On an accelerator a copy of all keys in 32 bits would
    # cost more time than the step has.
    multiplied = q.dtype if accelerated(q) else exact
    grouped = q.unflatten(1, (parts[0].keys.shape[1], -1))[:, :, :, 0].to(multiplied)  # [1, G, H / G, D]
    scores = []
    for keys, _, sets, skip in parts:
        score = (grouped @ keys.to(multiplied).mT).flatten(1, 2).to(exact) * scale  # [1, H, n]
        scores.append(score.masked_fill((sets & skip) != 0, float("-inf")))
    together = torch.cat(scores, -1)[:, :, None]  # [1, H, 1, n of all parts]
    weights = softmax(together, sink_logits)[:, :, 0].nan_to_num(0.0).to(multiplied).unflatten(1, grouped.shape[1:3])
    pieces = weights.split([part.keys.shape[2] for part in parts], -1)
    out = sum(weight @ part.values.to(multiplied) for weight, part in zip(pieces, parts, strict=True)).to(q.dtype)
    lse = torch.logsumexp(together, -1)
    return out.reshape(q.shape), lse if sink_logits is None else torch.logaddexp(lse, sink_logits.to(lse)[:, None])


def _part(read: Read) -> _Part:
    keys, values, sets, skip = read
    of_head = sets.stride(0) if sets.dim() == 2 else 0
    strides = *keys.stride()[1:3], *values.stride()[1:3]
    return _Part(*(x.data_ptr() for x in read[:3]), keys.shape[2], *strides, of_head, sets.itemsize, skip)


@functools.cache
def programs() -> dict[torch.dtype, Callable]:
    """Type -> the function of `one_query.cpp` for it; {} where nothing can be built."""
    built = library()
    if built is None:
        return {}
    by_dtype = {torch.float32: built.one_query_single, torch.bfloat16: built.one_query_half}
    for program in by_dtype.values():
        program.argtypes, program.restype = (POINTER(_Query), POINTER(_Part), c_long, c_long), c_int
    return {**by_dtype}
