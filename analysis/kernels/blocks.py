"""Exact attention over the blocks that a map keeps, for prompts: a block is `block` queries by `block` keys.

On a processor no mask is made. The blocks on the diagonal are one causal call; the blocks before it are gathered, the
rows of blocks that keep equally many in one call; the two are merged by logsumexp. What a map leaves out is not
touched. On CUDA FlexAttention gets a `BlockMask` made of the map itself, never of T x T pairs.
"""

from collections.abc import Iterator
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import BadSetting
from .merge import merge
from .window import flash

BLOCK = 128
GATHERED = 8 << 20  # bytes of keys that are gathered at once


@torch.no_grad()
def block_attention(
    q: Tensor, k: Tensor, v: Tensor, blocks: Tensor, block: int = BLOCK, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """Attention of each query to the keys of the blocks that are kept, causal inside, exact.

    q [B, H, T, D], k and v [B, G, T, D] with G a divisor of H; blocks bool [B, H, n, n], n = ceil(T / block), row and
    column of a block, True = read; what lies above the diagonal is ignored. `scale` is 1/sqrt(D) unless given ->
    (out [B, H, T, D], lse [B, H, T], the natural logarithm of the sum of exponentials; a query that reads nothing has 0
    and -inf). Errors: BadSetting for shapes that do not belong together.
    """
    batch, heads, length, size = q.shape
    count = -(-length // block)
    if tuple(blocks.shape) != (batch, heads, count, count):
        raise BadSetting(
            f"The map has the shape {list(blocks.shape)}, and {length:,} tokens in blocks of {block} with {heads} "
            f"heads need {[batch, heads, count, count]}."
        )
    if k.shape != v.shape or heads % k.shape[1] or k.shape[2] != length:
        raise BadSetting(
            f"Queries {list(q.shape)}, keys {list(k.shape)} and values {list(v.shape)} do not belong together: "
            "[B, H, T, D] and twice [B, G, T, D] are needed, G a divisor of H."
        )
    scale = size**-0.5 if scale is None else scale
    if q.device.type == "cuda":
        return _by_flex(q, k, v, blocks, block, scale)
    if q.device.type != "cpu":
        return _masked(q, k, v, blocks, block, scale)
    rows = F.pad(q, (0, 0, 0, -length % block)).unflatten(2, (count, block))  # [B, H, n, block, D]
    out, lse = _diagonal(q, k, v, rows, scale)  # of these rows
    left_out = ~blocks.diagonal(dim1=2, dim2=3)[..., None]
    out.masked_fill_(left_out[..., None], 0.0)
    lse.masked_fill_(left_out, -torch.inf)
    blocks_kv = [_whole(x, block) for x in (k, v)]
    rows, all_out, all_lse = rows.flatten(0, 2), out.flatten(0, 2), lse.flatten(0, 2)  # [B H n, block(, D)]
    complete, shared = length // block, heads // k.shape[1]
    for places, columns in _alike(blocks.tril(-1), complete, shared, size * q.element_size() * block):
        keys, values = (x.index_select(0, columns.flatten()).view(len(places), 1, -1, size) for x in blocks_kv)
        queries = rows.index_select(0, places)[:, None]  # [R, 1, block, D]
        far_out, sums = (x[:, 0] for x in flash(queries, keys, values, 0.0, False, scale=scale))
        merged, total = merge(*(x.index_select(0, places) for x in (all_out, all_lse)), far_out, sums.to(lse))
        all_out.index_copy_(0, places, merged.to(out))
        all_lse.index_copy_(0, places, total)
    return out.flatten(2, 3)[:, :, :length], lse.flatten(2, 3)[:, :, :length]


def _diagonal(q: Tensor, k: Tensor, v: Tensor, rows: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Every block of queries with its own block of keys, as rows of blocks: all whole ones of a text in one call, then
    the rest. out [B, H, n, block, D], lse [B, H, n, block]; places beyond the text hold nothing of meaning."""
    length, block = q.shape[2], rows.shape[3]
    complete = length // block
    out, lse = rows.new_zeros(rows.shape), torch.zeros(rows.shape[:4], dtype=_sum_type(q))
    for text in range(len(q)):
        if complete:
            pieces = (x[text, :, : complete * block].unflatten(1, (complete, block)).transpose(0, 1) for x in (q, k, v))
            outputs, sums = flash(*pieces, 0.0, True, scale=scale)  # [whole, H, block, D]
            out[text, :, :complete], lse[text, :, :complete] = outputs.transpose(0, 1), sums.transpose(0, 1)
        if remainder := length - complete * block:
            outputs, sums = flash(*(x[text : text + 1, :, -remainder:] for x in (q, k, v)), 0.0, True, scale=scale)
            out[text, :, complete, :remainder], lse[text, :, complete, :remainder] = outputs[0], sums[0]
    return out, lse


def _alike(before: Tensor, complete: int, shared: int, bytes_of_block: int) -> Iterator[tuple[Tensor, Tensor]]:
    """(rows [R] of B H n, columns [R, c] of B G `complete` blocks of keys) of rows of blocks that keep the same number
    c > 0 of blocks before their own, few enough that their keys stay in the cache. Of all texts and heads at once:
    where blocks are small, there are many rows and each head has few of a kind."""
    batch, heads, count = before.shape[:3]
    before = before.flatten(0, 2)  # [B H n, n]
    counts = before.sum(-1)
    first = torch.arange(batch * heads // shared).repeat_interleave(shared * count) * complete
    for per_row in counts.unique().tolist():
        if not per_row:
            continue
        rows = (counts == per_row).nonzero()[:, 0]
        columns = before[rows].nonzero()[:, 1].view(-1, per_row) + first[rows, None]
        together = max(1, GATHERED // (per_row * bytes_of_block))
        yield from zip(rows.split(together), columns.split(together), strict=True)


def _whole(x: Tensor, block: int) -> Tensor:
    """The whole blocks of x [B, G, T, D], [B G m, block, D]: those before a diagonal are."""
    return x[:, :, : x.shape[2] // block * block].unflatten(2, (-1, block)).flatten(0, 2)


def _masked(q: Tensor, k: Tensor, v: Tensor, blocks: Tensor, block: int, scale: float) -> tuple[Tensor, Tensor]:
    """One row of blocks after the other, what is not kept masked: for devices without a kernel."""
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    out, lse = torch.empty_like(q), torch.empty(q.shape[:3], dtype=_sum_type(q), device=q.device)
    for row in range(blocks.shape[2]):
        start, stop = row * block, min((row + 1) * block, q.shape[2])
        read = blocks[:, :, row, : row + 1].repeat_interleave(block, 2)[:, :, None, :stop]
        rows, places = torch.arange(start, stop, device=q.device), torch.arange(stop, device=q.device)
        scores = (q[:, :, start:stop].to(lse) @ k[:, :, :stop].to(lse).transpose(2, 3)) * scale
        scores = scores.masked_fill(~(read & (places <= rows[:, None])), -torch.inf)
        out[:, :, start:stop] = torch.softmax(scores, -1).nan_to_num(0.0) @ v[:, :, :stop].to(lse)
        lse[:, :, start:stop] = torch.logsumexp(scores, -1)
    return out, lse


def _sum_type(q: Tensor) -> torch.dtype:
    return torch.promote_types(q.dtype, torch.float32)


def _by_flex(q: Tensor, k: Tensor, v: Tensor, blocks: Tensor, block: int, scale: float) -> tuple[Tensor, Tensor]:
    grouped = q.shape[1] != k.shape[1]
    mask = block_mask(blocks, q.shape[2], block)
    return _flex()(q, k, v, block_mask=mask, scale=scale, enable_gqa=grouped, return_lse=True)


def block_mask(blocks: Tensor, length: int, block: int):
    """FlexAttention's `BlockMask` of a map: blocks before the diagonal are read whole, those on it causally."""
    from torch.nn.attention.flex_attention import BlockMask

    def read(text, head, query, key):
        return (query >= key) & blocks[text, head, query // block, key // block]

    full, partly = blocks.tril(-1), torch.diag_embed(blocks.diagonal(dim1=2, dim2=3))
    return BlockMask.from_kv_blocks(
        *_listed(partly), *_listed(full), BLOCK_SIZE=block, mask_mod=read, seq_lengths=(length, length)
    )


def _listed(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """How many blocks each row reads, int32 [B, H, n], and their columns, int32 [B, H, n, n], those read first."""
    order = blocks.int().argsort(dim=-1, descending=True, stable=True)
    return blocks.sum(-1, dtype=torch.int32), order.int()


@cache
def _flex():
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention)
