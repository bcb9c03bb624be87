"""One query over packed keys and values by `narrow.cpp`, where a C++ compiler is at hand."""

import functools
from collections.abc import Callable, Sequence
from ctypes import POINTER, Structure, byref, c_float, c_int, c_long, c_void_p

import torch
from torch import Tensor

from .bits import Directions, Format, Steps, lloyd_max, rotation
from .library import library, of_heads
from .one_query import ALONE
from .pool import accelerated

# Of `narrow.cpp`.
STEPS, COLUMNS, FLOATS, DIRECTIONS = range(4)


class Side(Structure):
    """Packed rows of some heads and those behind them, as `narrow.cpp` reads them."""

    _fields_ = [
        *((name, c_void_p) for name in ("codes", "steps", "lows", "levels", "tail")),
        *((name, c_long) for name in ("kind", "bits", "group", "packed", "bytes", "code_head", "step_head")),
        *((name, c_long) for name in ("tail_rows", "tail_head")),
    ]


class _Asked(Structure):
    _fields_ = [
        *((name, c_void_p) for name in ("q", "turned", "out", "sink_logits")),
        *((name, c_long) for name in ("heads", "repeat", "size")),
        ("scale", c_float),
    ]


def compiled(q: Tensor) -> bool:
    """Whether the program takes this query: float32 or bfloat16 on the CPU, and a compiler that built it."""
    return not accelerated(q) and not torch.is_grad_enabled() and q.dtype in programs()


def side(stored_as: Format, parts: Sequence[Tensor], tail: Tensor) -> Side:
    """Heads [S] as the program reads them: packed parts [S, n, ...] and rows behind them [S, m, D]."""
    kind, bits, group, levels = FLOATS, 8, 1, None
    if isinstance(stored_as, Steps):
        kind, bits, group = (COLUMNS if stored_as.by_column else STEPS), stored_as.bits, stored_as.group
    elif isinstance(stored_as, Directions):
        kind, bits, levels = DIRECTIONS, stored_as.bits, _levels(stored_as.bits).data_ptr()
    behind = tail.data_ptr(), kind, bits, group
    if not parts:
        return Side(None, None, None, levels, *behind, 0, 0, 0, 0, tail.shape[1], tail.stride(0))
    codes, steps = parts[:2]
    about = codes.shape[1], codes.shape[2], codes.stride(0), steps.stride(0), tail.shape[1], tail.stride(0)
    return Side(codes.data_ptr(), steps.data_ptr(), parts[-1].data_ptr(), levels, *behind, *about)


def attend(q: Tensor, keys: Side, values: Side, stored_as: Format, scale: float, sinks: Tensor | None) -> Tensor:
    """q [S, H / G, 1, D] over keys of this format, and values, beside learned sinks [S, H / G] -> as q. Errors:
    MemoryError."""
    heads, repeat, _, size = q.shape
    q, learned = q.contiguous(), of_heads(sinks)
    out, turned = torch.empty_like(q), q.float() @ _rotation(size) if isinstance(stored_as, Directions) else None
    addresses = (None if x is None else x.data_ptr() for x in (q, turned, out, learned))
    asked = _Asked(*addresses, heads * repeat, repeat, size, scale)
    bytes_read = heads * sum(part.packed * part.bytes + part.tail_rows * size * q.itemsize for part in (keys, values))
    threads = max(1, min(torch.get_num_threads(), heads, bytes_read // ALONE))
    if programs()[q.dtype](byref(asked), byref(keys), byref(values), threads):
        raise MemoryError("A step of attention was refused memory.")
    return out


_rotation = functools.cache(rotation)


@functools.cache
def _levels(bits: int) -> Tensor:
    """The levels as float32, with room for 16."""
    levels = torch.zeros(16)
    levels[: 2**bits] = torch.tensor(lloyd_max(bits))
    return levels


@functools.cache
def programs() -> dict[torch.dtype, Callable]:
    """Type -> the function of `narrow.cpp` for it; {} where nothing can be built."""
    built = library()
    if built is None:
        return {}
    by_dtype = {torch.float32: built.narrow_single, torch.bfloat16: built.narrow_half}
    for program in by_dtype.values():
        program.argtypes, program.restype = (POINTER(_Asked), POINTER(Side), POINTER(Side), c_long), c_int
    return {**by_dtype}
