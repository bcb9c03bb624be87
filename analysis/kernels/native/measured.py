"""Statistics of attention rows by a program of our own, `measured.cpp`, where a C++ compiler is at hand; else `rows`,
by numba, gives the same numbers.

Dense attention is computed on the way: the scores of a block of 24 or 32 queries, in float32 or, of bfloat16 on
processors that multiply tiles of it (AMX), in tiles with sums of float32; one pass over each row while it lies in the
cache; then its values.
"""

from ctypes import POINTER, Structure, byref, c_double, c_float, c_int, c_long, c_void_p
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from .. import native, rows
from ..rank import SLACK

# The numbers of a row, and the bins of distance.
COLUMNS, BINS = 9, 32
Strides = c_long * 3


class _Asked(Structure):
    _fields_ = [("mass", c_double), ("window", c_long), ("without_first", c_int), ("more", c_int)]


class _Layer(Structure):
    _fields_ = [
        *((name, c_void_p) for name in ("q", "k", "v", "out")),
        *((f"{name}_to", Strides) for name in ("q", "k", "v", "out")),
        *((name, c_void_p) for name in ("first", "real", "earlier", "sums", "counts", "distance", "every")),
        *((name, c_long) for name in ("watched", "texts", "heads", "repeat", "length", "size")),
        ("asked", _Asked),
        ("scale", c_float),
    ]


programs = partial(native.programs, "measured", POINTER(_Layer), c_long)


Facts = TypeVar("Facts", np.ndarray, Tensor)


@dataclass(frozen=True)
class Texts(Generic[Facts]):
    """What is asked of rows, and the facts of texts: `first` int64 [B], the place of the first real token; `real` bool
    [B, T]; `earlier` int64 [B, T], where a token last stood before, or -1; `ids` int64 [B, T], the tokens, which the
    reading by torch alone looks at."""

    mass: float
    window: int
    without_first: bool
    more: bool
    first: Facts
    real: Facts
    earlier: Facts
    ids: Facts

    def asked(self) -> _Asked:
        """As the program reads it."""
        return _Asked(self.mass * SLACK, self.window, self.without_first, self.more)


def runs(q: Tensor, v: Tensor) -> bool:
    """Whether the program computes attention of these states [B, H, T, D]: float32, or bfloat16 in even heads where the
    processor has tiles; values of the queries' size."""
    even = q.dtype == torch.float32 or q.shape[-1] % 2 == 0
    return even and q.device.type == "cpu" and q.shape[-1] == v.shape[-1] and q.dtype in programs()


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    texts: Texts[np.ndarray],
    sums: np.ndarray,
    counts: np.ndarray,
    distance: np.ndarray,
    every: tuple[int, np.ndarray] | None = None,
) -> Tensor:
    """Dense causal attention of q [B, H, T, D] over k and v [B, G, T, D], as q; added to, float64: `sums` and `counts`
    [H, COLUMNS] of the numbers that are defined, and `distance` [H, BINS]. `every` (head, float64 [B, T, COLUMNS]) is
    filled with the numbers of every query of one head. Errors: MemoryError."""
    batch, heads, length, size = q.shape
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    out = torch.empty_like(q)
    watched, numbers = every or (-1, None)
    layer = _Layer(
        *(x.data_ptr() for x in (q, k, v, out)),
        *(Strides(*x.stride()[:3]) for x in (q, k, v, out)),
        *(x.ctypes.data for x in (texts.first, texts.real, texts.earlier, sums, counts, distance)),
        None if numbers is None else numbers.ctypes.data,
        *(watched, batch, heads, heads // k.shape[1], length, size),
        *(texts.asked(), scale),
    )
    if programs()[q.dtype](byref(layer), min(torch.get_num_threads(), heads)):
        raise MemoryError("Attention with its statistics was refused memory.")
    return out


def measure_rows(
    scores: np.ndarray,
    start: int,
    texts: Texts[np.ndarray],
    text: int,
    measured: np.ndarray,
    totals: np.ndarray,
    distance: np.ndarray,
) -> None:
    """One head's queries start..start + n of a text, over scaled logits float32 [n, m] of its first m keys.

    `scores` is overwritten by the weights e^(s - max), the future by zeros; -inf there marks other keys that are not
    visible. Filled: `measured` float64 [n, COLUMNS], NaN where a number is not defined; `totals` float32 [n], the sum
    of each row's weights; added to, with `more`: `distance` float64 [BINS].
    """
    if (built := _built()) is None:
        facts = int(texts.first[text]), texts.real[text], texts.earlier[text]
        asked: tuple[Any, ...] = (texts.mass, texts.window, texts.without_first, texts.more)
        rows.measure_rows(scores, start, *facts, *asked, measured, totals, distance)
        return
    assert scores.flags.c_contiguous
    facts = int(texts.first[text]), texts.real[text].ctypes.data, texts.earlier[text].ctypes.data
    arrays = measured.ctypes.data, totals.ctypes.data, distance.ctypes.data
    built.measured_rows(scores.ctypes.data, *scores.shape, start, byref(texts.asked()), *facts, *arrays)


def sharpness(scores: np.ndarray, start: int, entropy: np.ndarray, largest: np.ndarray) -> None:
    """Entropy in nats and largest probability of one head's queries start..start + n: what a temperature changes.

    `scores` float32 [n, m] as in `measure_rows`, overwritten; filled: `entropy` and `largest` float64 [n], NaN where
    all is hidden.
    """
    if (built := _built()) is None:
        rows.sharpness(scores, start, entropy, largest)
        return
    assert scores.flags.c_contiguous
    built.measured_sharpness(scores.ctypes.data, *scores.shape, start, entropy.ctypes.data, largest.ctypes.data)


def _built() -> Any:
    """The library, told what its functions take; None where nothing can be built."""
    built = native.library()
    if built is not None:
        numbers = c_long, c_long, c_long
        facts = POINTER(_Asked), c_long, c_void_p, c_void_p
        built.measured_rows.argtypes = (c_void_p, *numbers, *facts, c_void_p, c_void_p, c_void_p)
        built.measured_rows.restype = None
        built.measured_sharpness.argtypes = (c_void_p, *numbers, c_void_p, c_void_p)
        built.measured_sharpness.restype = None
    return built
