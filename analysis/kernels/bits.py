"""Numbers in a few bits: steps between the least and the largest of a group, 8-bit floats, and directions on a grid
after a fixed rotation. What is stored are bytes, and each of them is counted.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import BadSetting

# Bits of a number -> the widths that divide a byte evenly and make them up, the lowest bits first.
PLANES = {8: (8,), 4: (4,), 3: (2, 1), 2: (2,)}
# Largest numbers of float16 and of e4m3.
HALF_MOST, E4M3_MOST = 65504.0, 448.0
# Kind of `quantize` -> its numbers of bits.
KINDS = {"int": tuple(PLANES), "fp8": (8,), "turbo": (4, 3, 2)}


class Format(Protocol):
    """How rows of numbers [..., n, D] are stored: `encode` gives tensors whose dimension before the last counts rows or
    groups of rows, `decode` makes float32 of them again, D = `size`."""

    def encode(self, x: Tensor) -> tuple[Tensor, ...]: ...

    def decode(self, parts: Sequence[Tensor], size: int) -> Tensor: ...


@dataclass(frozen=True)
class Steps:
    """Even steps from the least number of a group to its largest: of `group` numbers of a row, or of a column.

    Coded in float32; the step and the least number are stored as float16, and what comes back is made of those.
    """

    bits: int
    group: int
    by_column: bool = False

    @property
    def _dim(self) -> int:
        return -2 if self.by_column else -1

    def encode(self, x: Tensor) -> tuple[Tensor, ...]:
        """Codes uint8 [..., n, bytes], steps and least numbers float16, one each for a group."""
        dim, count = self._dim, x.shape[self._dim]
        group = min(self.group, count)
        # a last group that is not full repeats its last number, which changes neither end of its range
        places = torch.arange(-(-count // group) * group, device=x.device).clamp(max=count - 1)
        grouped = x.float().index_select(dim, places).unflatten(dim, (-1, group))
        low, high = grouped.amin(dim, keepdim=True), grouped.amax(dim, keepdim=True)
        step = (high - low) / (2**self.bits - 1)
        codes = ((grouped - low) / step.where(step > 0, 1.0)).round_().byte().flatten(dim - 1, dim)
        return pack(codes.narrow(dim, 0, count), self.bits), step.squeeze(dim).half(), low.squeeze(dim).half()

    def decode(self, parts: Sequence[Tensor], size: int) -> Tensor:
        """The numbers, float32 [..., n, size]."""
        codes = unpack(parts[0], self.bits, size)
        dim, count = self._dim, codes.shape[self._dim]
        group = min(self.group, count)
        step, low = (part.float().repeat_interleave(group, dim).narrow(dim, 0, count) for part in parts[1:])
        return codes.float().mul_(step).add_(low)


@dataclass(frozen=True)
class Floats:
    """8-bit floats (e4m3) with one factor for a row, so that its largest number is the largest there is."""

    def encode(self, x: Tensor) -> tuple[Tensor, ...]:
        """Codes uint8 [..., n, D] and factors float16 [..., n, 1]."""
        factor = (x.float().abs().amax(-1, keepdim=True) / E4M3_MOST).half()
        scaled = (x.float() / factor.float().where(factor > 0, 1.0)).clamp(-E4M3_MOST, E4M3_MOST)
        return scaled.to(torch.float8_e4m3fn).view(torch.uint8), factor

    def decode(self, parts: Sequence[Tensor], size: int) -> Tensor:
        """The numbers, float32 [..., n, size]."""
        return parts[0].view(torch.float8_e4m3fn).float() * parts[1].float()


@dataclass(frozen=True)
class Directions:
    """The length of a row as float16, and its direction: turned by `rotation`, each number goes to the nearest of the
    levels that suit a normal variable of variance 1/D, and what comes back is brought to length 1 again."""

    bits: int

    def encode(self, x: Tensor) -> tuple[Tensor, ...]:
        """Codes uint8 [..., n, bytes] and lengths float16 [..., n, 1]."""
        length = x.float().norm(dim=-1, keepdim=True)
        turned = (x.float() / length.where(length > 0, 1.0)) @ rotation(x.shape[-1], x.device)
        edges = _numbers([(low + high) / 2 for low, high in pairwise(lloyd_max(self.bits))], x)
        codes = torch.bucketize(turned * math.sqrt(x.shape[-1]), edges)
        return pack(codes.byte(), self.bits), length.half()

    def decode(self, parts: Sequence[Tensor], size: int) -> Tensor:
        """The numbers, float32 [..., n, size]."""
        levels = _numbers(lloyd_max(self.bits), parts[0])
        turned = F.normalize(levels[unpack(parts[0], self.bits, size).int()], dim=-1)
        return (turned * parts[1].float()) @ rotation(size, parts[0].device).T


def pack(codes: Tensor, bits: int) -> Tensor:
    """Whole numbers below 2^bits, uint8 [..., D], side by side in bytes: 8 bits one a byte, 4 two, 2 four, 3 as 2 and
    one more; each row fills up its last byte. Neighbours in a byte lie far apart in the row, so that a whole run of
    bytes is unpacked by one shift."""
    planes, shift = [], 0
    for width in PLANES[bits]:
        per_byte = 8 // width
        plane = codes >> shift & 2**width - 1
        plane = F.pad(plane, (0, -codes.shape[-1] % per_byte)).unflatten(-1, (per_byte, -1))
        packed = plane[..., 0, :].clone()
        for place in range(1, per_byte):
            packed |= plane[..., place, :] << width * place
        planes.append(packed)
        shift += width
    return torch.cat(planes, -1) if planes[1:] else planes[0]


def unpack(packed: Tensor, bits: int, size: int) -> Tensor:
    """What `pack` put together, uint8 [..., size]."""
    codes, start, shift = None, 0, 0
    for width in PLANES[bits]:
        per_byte = 8 // width
        run = packed.narrow(-1, start, -(-size // per_byte))
        shifts = range(0, 8, width)
        plane = torch.cat([run >> by & 2**width - 1 for by in shifts], -1)[..., :size] << shift
        codes = plane if codes is None else codes | plane
        start, shift = start + run.shape[-1], shift + width
    assert codes is not None
    return codes


def rotation(size: int, device: torch.device | str = "cpu") -> Tensor:
    """The fixed orthogonal matrix, float32 [size, size]: Hadamard's over sqrt(size), without random signs; of a size
    that is no power of two, one from a seed."""
    if size & size - 1 == 0:
        # made there: a copy would wait for an accelerator
        places = torch.arange(size, device=device)
        both, odd = places[:, None] & places, torch.zeros(size, size, dtype=torch.long, device=device)
        for bit in range(size.bit_length()):
            odd = odd ^ both >> bit & 1
        return (1.0 - 2.0 * odd) / math.sqrt(size)
    drawn = torch.randn(size, size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    matrix, upper = torch.linalg.qr(drawn)
    # the signs that a factorisation leaves open
    return (matrix * upper.diagonal().sign()).float().to(device)


@functools.cache
def lloyd_max(bits: int) -> tuple[float, ...]:
    """The 2^bits levels of least mean squared error for a normal variable of variance 1, rising (Max, 1960): each the
    mean of what is nearest to it."""
    normal = NormalDist()
    levels = [normal.inv_cdf((place + 0.5) / 2**bits) for place in range(2**bits)]
    for _ in range(10_000):
        edges = [(low + high) / 2 for low, high in pairwise(levels)]
        heights = [0.0, *map(normal.pdf, edges), 0.0]
        below = [0.0, *map(normal.cdf, edges), 1.0]
        before, levels = levels, [(heights[i] - heights[i + 1]) / (below[i + 1] - below[i]) for i in range(2**bits)]
        if max(abs(x - y) for x, y in zip(before, levels, strict=True)) < 1e-12:
            break
    return tuple(levels)


def _numbers(values: Sequence[float], like: Tensor) -> Tensor:
    """A few numbers as float32 where another tensor lies, without a copy from the host."""
    return torch.stack([torch.full((), value, device=like.device) for value in values])


def stored(stored_as: Format, x: Tensor) -> Tensor:
    """What is left of rows [..., n, D] once they were stored, in their type."""
    return stored_as.decode(stored_as.encode(x), x.shape[-1]).to(x)


@dataclass(frozen=True)
class Quantised:
    """A tensor in a few bits: `format.encode` of it gave `parts`, where columns are coded with `axis` as the dimension
    before the last."""

    format: Format
    parts: tuple[Tensor, ...]
    # Numbers in a row.
    size: int
    axis: int | None = None

    @property
    def dequantised(self) -> Tensor:
        """What the stored bytes say, float32, of the tensor's shape."""
        decoded = self.format.decode(self.parts, self.size)
        return decoded if self.axis is None else decoded.movedim(-2, self.axis)

    @property
    def nbytes(self) -> int:
        """Bytes of packed numbers, steps, least numbers, factors and lengths."""
        return sum(part.nbytes for part in self.parts)


@torch.no_grad()
def quantize(x: Tensor, bits: int, kind: str = "int", axis: int = -1, group: int = 64) -> Quantised:
    """A tensor [..., D] in `bits` bits a number -> an object with `.dequantised`, float32 of the same shape, and
    `.nbytes`, all bytes stored. Kinds:

    - `int` (8, 4, 3 or 2 bits; KIVI, arXiv 2402.02750): even steps between the least and the largest number of every
      `group` neighbours along `axis`, coded in float32; each group stores step and least number as float16, 4 bytes.
    - `fp8` (8 bits): e4m3, with a float16 factor for each row along the last axis.
    - `turbo` (4, 3 or 2 bits; TurboQuant, arXiv 2504.19874): a row's length as float16, and its direction turned by a
      Hadamard matrix over sqrt(D) and rounded to the Lloyd-Max levels of N(0, 1/D), which is brought to length 1 again.

    `group` counts for `int` only. Errors: BadSetting for another kind or number of bits, an axis that `fp8` and `turbo`
    do not have, and numbers that float16 cannot hold.
    """
    if kind not in KINDS:
        raise BadSetting(f"There is no kind {kind!r} of fewer bits; there are: {', '.join(KINDS)}.")
    if bits not in KINDS[kind]:
        raise BadSetting(f"bits is {bits} and must be one of {', '.join(map(str, KINDS[kind]))} for {kind}.")
    if group < 1:
        raise BadSetting(f"group is {group} and must be at least 1: numbers that share a step.")
    if not x.numel() or not -x.dim() <= axis < x.dim():
        raise BadSetting(f"A tensor {list(x.shape)} has no numbers along the axis {axis}: choose another axis.")
    by_column = axis % x.dim() != x.dim() - 1
    if by_column and kind != "int":
        raise BadSetting(f"axis is {axis} and must be the last one for {kind}, which codes whole rows.")
    # of what is not finite too, every comparison is false
    if not x.abs().amax() <= HALF_MOST:
        raise BadSetting(
            f"A number lies beyond {HALF_MOST:,.0f} or is none, and float16 cannot store it: scale x first."
        )
    formats: dict[str, Format] = {"int": Steps(bits, group, by_column), "fp8": Floats(), "turbo": Directions(bits)}
    rows = x.movedim(axis, -2) if by_column else x
    return Quantised(formats[kind], formats[kind].encode(rows), rows.shape[-1], axis if by_column else None)
