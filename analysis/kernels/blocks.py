"""Exact attention over the blocks that a map keeps, for prompts: a block is `block` queries by `block` keys.

On a processor no mask is made. The blocks on the diagonal are one causal call; the blocks before it are gathered, the
rows of blocks that keep equally many in one call; the two are merged by logsumexp. What a map leaves out is not
touched. On an accelerator FlexAttention gets a `BlockMask` made of the map itself, never of T x T pairs.
"""

import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import BadSetting
from .dense import flash
from .merge import merge, with_sink_logits
from .pool import accelerated

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

BLOCK = 128
# Of FlexAttention.
SMALLEST_HEAD = 16
# Bytes of keys that are gathered at once.
GATHERED = 8 << 20


@torch.no_grad()
def block_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    blocks: Tensor,
    block: int = BLOCK,
    scale: float | None = None,
    sink_logits: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention of each query to the keys of the blocks that are kept, causal inside, exact.

    q [B, H, T, D], k and v [B, G, T, D] with G a divisor of H; blocks bool [B, H, n, n], n = ceil(T / block), row and
    column of a block, True = read; what lies above the diagonal is ignored. `scale` is 1/sqrt(D) unless given;
    `sink_logits` [H] are learned sinks, one more term of every sum -> (out [B, H, T, D], lse [B, H, T], the natural
    logarithm of the sum of exponentials; a query that reads nothing has 0 and -inf). Errors: BadSetting for shapes that
    do not belong together.
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
    out, lse = _by_blocks(q, k, v, blocks, block, scale)
    return (out, lse) if sink_logits is None else with_sink_logits(out, lse, sink_logits)


def _by_blocks(q: Tensor, k: Tensor, v: Tensor, blocks: Tensor, block: int, scale: float) -> tuple[Tensor, Tensor]:
    """`block_attention` without sinks."""
    (batch, heads, length, size), count = q.shape, blocks.shape[-1]
    if accelerated(q):
        return _by_flex(q, k, v, blocks, block, scale)
    # every block of queries with its own block of keys, [B, heads, n, block, D]; what lies beyond the text reads zeros
    padded = [F.pad(x, (0, 0, 0, -length % block)).unflatten(2, (count, block)) for x in (q, k, v)]
    texts = [flash(*(x[text].transpose(0, 1) for x in padded), 0.0, True, scale=scale) for text in range(batch)]
    out, lse = (torch.stack(parts).transpose(1, 2).contiguous() for parts in zip(*texts, strict=True))
    lse = lse.to(torch.promote_types(q.dtype, torch.float32))
    left_out = ~blocks.diagonal(dim1=2, dim2=3)[..., None]
    out.masked_fill_(left_out[..., None], 0.0)
    lse.masked_fill_(left_out, -torch.inf)
    queries, keys, values = (x.flatten(0, 2) for x in padded)  # [B heads n, block, D]
    rows_out, rows_lse = out.flatten(0, 2), lse.flatten(0, 2)
    for rows, columns in _alike(blocks.tril(-1), heads // k.shape[1], size * q.element_size() * block):
        gathered = (x.index_select(0, columns.flatten()).view(len(rows), 1, -1, size) for x in (keys, values))
        far, sums = (x[:, 0] for x in flash(queries[rows][:, None], *gathered, 0.0, False, scale=scale))
        merged, total = merge(rows_out[rows], rows_lse[rows], far, sums.to(lse))
        rows_out.index_copy_(0, rows, merged.to(out))
        rows_lse.index_copy_(0, rows, total)
    return out.flatten(2, 3)[:, :, :length], lse.flatten(2, 3)[:, :, :length]


def _alike(before: Tensor, shared: int, bytes_of_block: int) -> Iterator[tuple[Tensor, Tensor]]:
    """(rows [R] of B H n, columns [R, c] of B G n blocks of keys) of rows of blocks that keep the same number c > 0 of
    blocks before their own, few enough that their keys stay in the cache. Of all texts and heads at once: where blocks
    are small, there are many rows and each head has few of a kind."""
    batch, heads, count = before.shape[:3]
    before = before.flatten(0, 2)  # [B H n, n]
    counts = before.sum(-1)
    first = torch.arange(batch * heads // shared).repeat_interleave(shared * count) * count
    for per_row in counts.unique().tolist():
        if not per_row:
            continue
        rows = (counts == per_row).nonzero()[:, 0]
        columns = before[rows].nonzero()[:, 1].view(-1, per_row) + first[rows, None]
        together = max(1, GATHERED // (per_row * bytes_of_block))
        yield from zip(rows.split(together), columns.split(together), strict=True)


def _by_flex(q: Tensor, k: Tensor, v: Tensor, blocks: Tensor, block: int, scale: float) -> tuple[Tensor, Tensor]:
    """By FlexAttention, on an accelerator."""
    from torch.nn.attention import flex_attention

    size = q.shape[-1]
    if size < SMALLEST_HEAD:
        # FlexAttention has no smaller heads; zeros change no score.
        q, k, v = (F.pad(x, (0, SMALLEST_HEAD - size)) for x in (q, k, v))
    about = {
        "block_mask": block_mask(blocks, q.shape[2], block),
        "scale": scale,
        "enable_gqa": q.shape[1] != k.shape[1],
    }
    out, aux = _flex()(q, k, v, return_aux=flex_attention.AuxRequest(lse=True), **about)
    return out[..., :size], aux.lse


def block_mask(blocks: Tensor, length: int, block: int) -> "BlockMask":
    """FlexAttention's `BlockMask` of a map, in blocks of a multiple of BLOCK, which its kernels need: those that are
    kept whole before the diagonal are read whole, in the others each pair is looked up."""
    from torch.nn.attention.flex_attention import BlockMask

    def read(text: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query >= key) & fine[text, head, query // block, key // block]

    fine, coarse = blocks, block
    if block % BLOCK:
        # So many tokens that both block sizes divide them.
        coarse = math.lcm(block, BLOCK)
        count, each = -(-length // coarse), coarse // block
        padded = F.pad(blocks, (0, count * each - blocks.shape[-1], 0, count * each - blocks.shape[-1]))
        blocks = padded.unflatten(3, (count, each)).unflatten(2, (count, each)).float().mean((3, 5))

    def listed(some: Tensor) -> tuple[Tensor, Tensor]:
        """How many blocks each row reads, and their columns, those read first."""
        return some.sum(-1, dtype=torch.int32), some.int().argsort(dim=-1, descending=True, stable=True).int()

    full = (blocks == 1).tril(-1)
    partly = (blocks > 0).tril() & ~full
    return BlockMask.from_kv_blocks(
        *listed(partly), *listed(full), BLOCK_SIZE=coarse, mask_mod=read, seq_lengths=(length, length)
    )


@cache
def _flex() -> Callable:
    from torch.nn.attention.flex_attention import flex_attention

    # Past its limit of compiled lengths torch would go on uncompiled and hold T x T: with `fullgraph` that is an error.
    return torch.compile(flex_attention, fullgraph=True)
