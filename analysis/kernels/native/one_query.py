"""One query over buffers of keys and values: by `one_query.cpp` where a C++ compiler is at hand, else by torch; over
packed ones by `narrow.cpp`.

A step of generation calls attention once a layer for one token, so what counts is the bytes read and the number of
calls: the program is one call, without the temporaries of torch's.
"""

from collections.abc import Sequence
from ctypes import POINTER, Structure, byref, c_float, c_int64, c_long, c_void_p
from functools import cache, partial
from typing import NamedTuple

import torch
from torch import Tensor

from .. import native
from ..bits import Directions, Format, Steps, lloyd_max, rotation
from ..pool import accelerated
from ..scoring import softmax
from . import ALONE, of_heads

# Kinds of rows of `narrow.cpp`.
STEPS, COLUMNS, FLOATS, DIRECTIONS = range(4)


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


programs = partial(native.programs, "one_query", POINTER(_Query), POINTER(_Part), c_long, c_long)


def compiled(q: Tensor) -> bool:
    """Whether the programs take this query: float32 or bfloat16 on the CPU, and a compiler that built it."""
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
    query = _Query(q.data_ptr(), out.data_ptr(), lse.data_ptr(), _address(sinks), heads, heads // kv_heads, size, scale)
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


def _address(numbers: Tensor | None) -> int | None:
    return None if numbers is None else numbers.data_ptr()


def _part(read: Read) -> _Part:
    keys, values, sets, skip = read
    of_head = sets.stride(0) if sets.dim() == 2 else 0
    strides = *keys.stride()[1:3], *values.stride()[1:3]
    return _Part(*(x.data_ptr() for x in read[:3]), keys.shape[2], *strides, of_head, sets.itemsize, skip)


class Packed(NamedTuple):
    """The keys or the values of some heads: how their first rows are packed, the parts [S, n, ...] of those, and the
    rows [S, m, D] behind them as they are."""

    format: Format
    parts: Sequence[Tensor]
    tail: Tensor


class _Side(Structure):
    _fields_ = [
        *((name, c_void_p) for name in ("codes", "steps", "lows", "levels", "turned", "tail")),
        *((name, c_long) for name in ("kind", "bits", "group", "packed", "bytes", "code_head", "step_head")),
        *((name, c_long) for name in ("tail_rows", "tail_head")),
    ]


_narrow = partial(native.programs, "narrow", POINTER(_Query), POINTER(_Side), POINTER(_Side), c_long)


def attend_packed(q: Tensor, keys: Packed, values: Packed, scale: float, sinks: Tensor | None) -> Tensor | None:
    """q [S, H / G, 1, D] over packed keys and values, beside learned sinks [S, H / G] -> as q; None where no program
    takes this query. Errors: MemoryError."""
    if not compiled(q):
        return None
    heads, repeat, _, size = q.shape
    q, learned, directions = q.contiguous(), of_heads(sinks), isinstance(keys.format, Directions)
    turned, out = q.float() @ _rotation(size) if directions else None, torch.empty_like(q)
    query = _Query(q.data_ptr(), out.data_ptr(), None, _address(learned), heads * repeat, repeat, size, scale)
    bytes_read = sum(part.nbytes for side in (keys, values) for part in (*side.parts[:1], side.tail))
    threads = max(1, min(torch.get_num_threads(), heads, bytes_read // ALONE))
    if _narrow()[q.dtype](byref(query), byref(_side(keys, turned)), byref(_side(values)), threads):
        raise MemoryError("A step of attention was refused memory.")
    return out


def _side(packed: Packed, turned: Tensor | None = None) -> _Side:
    stored_as, parts, tail = packed
    kind, bits, group, levels = FLOATS, 8, 1, None
    if isinstance(stored_as, Steps):
        kind, bits, group = (COLUMNS if stored_as.by_column else STEPS), stored_as.bits, stored_as.group
    elif isinstance(stored_as, Directions):
        kind, bits, levels = DIRECTIONS, stored_as.bits, _levels(stored_as.bits).data_ptr()
    behind = _address(turned), tail.data_ptr(), kind, bits, group
    if not parts:
        return _Side(None, None, None, levels, *behind, 0, 0, 0, 0, tail.shape[1], tail.stride(0))
    codes, steps = parts[:2]
    about = codes.shape[1], codes.shape[2], codes.stride(0), steps.stride(0), tail.shape[1], tail.stride(0)
    return _Side(codes.data_ptr(), steps.data_ptr(), parts[-1].data_ptr(), levels, *behind, *about)


_rotation = cache(rotation)


@cache
def _levels(bits: int) -> Tensor:
    """The levels as float32, with room for 16."""
    levels = torch.zeros(16)
    levels[: 2**bits] = torch.tensor(lloyd_max(bits))
    return levels
