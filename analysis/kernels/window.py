"""The local part on the CPU: keys less than `window` back that share no group with the query, a band of blocks.

Queries go in blocks of a few rows, and the keys of a block lie in one stretch of rows + window - 1 tokens that ends
with it. The stretches of all blocks are one overlapping strided view, so many blocks are one call, with a bias shared
by the heads. Only stretches that leave the text are copied.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
TOKENS = 1024  # queries of one call: its tensors stay in the cache
BIAS_VALUES = 4 << 20  # of one call
NEVER = -1e30  # bias of a pair that is not read; not -inf, of which the kernel makes rows with lse 0


@dataclass(frozen=True)
class Band:
    """How a text is cut: `rows` queries per block, `keys` in its stretch, `blocks` in one call."""

    window: int
    rows: int
    keys: int
    blocks: int

    @classmethod
    def of(cls, length: int, window: int, kind: torch.dtype) -> "Band":
        """Blocks that compute few pairs beyond the window: rows + window keys for each query."""
        window = min(window, length)
        small = 32 if kind == torch.float32 else 64  # measured; products of halves cost more to begin
        rows = small if window < 2048 else 256 if window < 8192 else 1024
        keys = -(-(rows + window - 1) // 16) * 16
        return cls(window, rows, keys, max(1, min(TOKENS // rows, BIAS_VALUES // (rows * keys))))

    @property
    def before(self) -> int:
        """Tokens of a stretch before the block's first query."""
        return self.keys - self.rows


def strangers(
    q: Tensor, k: Tensor, v: Tensor, sets: Tensor, window: int, scale: float
) -> Iterator[tuple[int, int, Tensor, Tensor]]:
    """One text, piece by piece: (start, stop, out [H, n, D], lse [H, n] float32) of the tokens start..stop.

    q [H, T, D], k and v [G, T, D], sets [T] the bit sets of the groups. Rows that read nothing have lse -inf.
    """
    heads, length = q.shape[:2]
    band = Band.of(length, window, q.dtype)
    distance = torch.arange(band.rows)[:, None] - torch.arange(band.keys) + band.before  # [rows, keys]
    outside = (distance < 0) | (distance >= band.window)
    step = band.rows * band.blocks
    for start in range(0, length, step):
        stop = min(start + step, length)
        blocks = -(-(stop - start) // band.rows)
        end, first = start + blocks * band.rows, start - band.before
        queries = _rows(q, start, end).unflatten(1, (blocks, band.rows)).transpose(0, 1)  # [blocks, H, rows, D]
        keys, values = (_stretches(_rows(x, first, end), band, blocks) for x in (k, v))  # [blocks, G, keys, D]
        around = _rows(sets[:, None], first, end)[:, 0].contiguous()
        theirs = around.as_strided((blocks, 1, band.keys), (band.rows, 0, 1))
        own_sets = around[band.before :].view(blocks, band.rows, 1)
        skip = (own_sets & theirs).bool().logical_or_(outside)  # [blocks, rows, keys]
        if first < 0:
            place = torch.arange(first, end).as_strided((blocks, 1, band.keys), (band.rows, 0, 1))
            skip.logical_or_(place < 0)
        bias = never(skip, q.dtype)[:, None].expand(-1, heads, -1, -1)
        out, lse = flash(queries, keys, values, 0.0, False, attn_mask=bias, scale=scale)
        out, lse = (x.transpose(0, 1).flatten(1, 2)[:, : stop - start] for x in (out, lse))
        yield start, stop, out, lse.masked_fill(lse < NEVER / 2, float("-inf"))


def never(skip: Tensor, kind: torch.dtype) -> Tensor:
    """The bias NEVER where `skip`, else 0, in a type the kernel takes beside `kind`. Ten times faster than a where."""
    kind = torch.float32 if kind == torch.float16 else kind  # no float16 is as small
    return skip.view(torch.uint8).to(kind).mul_(NEVER)


def _rows(x: Tensor, start: int, stop: int) -> Tensor:
    """Rows start..stop of the dimension before the last; zeros where they lie outside the text."""
    length = x.shape[-2]
    inside = x[..., max(0, start) : min(stop, length), :]
    if 0 <= start and stop <= length:
        return inside
    return F.pad(inside, (0, 0, max(0, -start), max(0, stop - length)))


def _stretches(x: Tensor, band: Band, blocks: int) -> Tensor:
    """[G, before + n rows, D] -> [n, G, keys, D], overlapping views."""
    heads, _, size = x.shape
    by_head, by_row, _ = x.stride()
    return x.as_strided((blocks, heads, band.keys, size), (band.rows * by_row, by_head, by_row, 1), x.storage_offset())
