"""Exact attention over the blocks that a map keeps, for prompts: a block is `block` queries by `block` keys.

On a processor no mask is made. The blocks on the diagonal are one causal call; the blocks before it are gathered, the
rows of blocks that keep equally many in one call; the two are merged by logsumexp. What a map leaves out is not
touched. On an accelerator FlexAttention gets a `BlockMask` made of the map itself, never of T x T pairs.

Below it what estimates of maps share: scores of blocks, the largest of them, and the blocks that lines cross. A map is
bool [B, H, n, n], n = ceil(T / block); the rules that make maps stand in their methods' files.
"""

import math
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import BadSetting
from .dense import flash
from .merge import merge, with_sink_logits
from .pool import AT_ONCE, accelerated
from .scoring import Scoring

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

BLOCK = 128
# Of FlexAttention.
SMALLEST_HEAD = 16
# Of scores that are made at once on a processor: they stay in the cache.
BYTES = 8 << 20
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


def rises(scores: Tensor, block: int) -> Tensor:
    """How far the largest score of each block of keys lies above the largest before it, in the row where it is most:
    [..., blocks] of scores [..., rows, keys], infinite for the first block. Skip softmax keeps a block whose rise
    exceeds log(lambda), so one pass tells what every lambda would leave out."""
    largest = in_blocks(scores, block, -torch.inf).amax(-1)  # [..., rows, blocks]
    before = F.pad(largest.cummax(-1).values[..., :-1], (1, 0), value=-torch.inf)
    return (largest - before).amax(-2)


def map_by_rows(q: Tensor, k: Tensor, block: int, scoring: Scoring, judge: Callable[[Tensor], Tensor]) -> Tensor:
    """The map [B, H, n, n] of what `judge` makes of the scores [..., rows of a block, keys so far], -inf in the future,
    as [..., blocks so far]. Goes through the rows of blocks, several at once where they are small, and takes as many
    heads at once as stay in the cache."""
    sharing, length = q.shape[1] // k.shape[1], q.shape[2]
    queries = (q * scoring.factor).unflatten(1, (-1, sharing)).flatten(0, 1)
    keys = k.flatten(0, 1).transpose(1, 2)  # [B G, D, T]; the queries [B G, H / G, T, D]
    count, judged = -(-length // block), []
    # Whole blocks, several where they are small, then what remains.
    complete, step = length // block * block, max(1, BLOCK // block) * block
    for start, stop in pairwise(sorted({*range(0, complete, step), complete, length})):
        rows, size = queries[:, :, start:stop], stop - start
        future = torch.ones(size, size, dtype=torch.bool, device=q.device).triu(1)
        heads = max(1, (AT_ONCE if accelerated(q) else BYTES) // (sharing * size * stop * q.element_size()))
        parts = []
        for some_queries, some_keys in zip(rows.split(heads), keys[..., :stop].split(heads), strict=True):
            scores = scoring.capped(some_queries.flatten(1, 2) @ some_keys).unflatten(1, (sharing, size))
            scores[..., start:].masked_fill_(future, -torch.inf)
            parts.append(judge(scores.unflatten(2, (-1, min(block, size)))))  # of [B G, H / G, R, rows, keys so far]
        blocks = torch.cat(parts).unflatten(0, (len(q), -1)).flatten(1, 2)  # [B, H, R, blocks so far]
        judged.append(F.pad(blocks, (0, count - blocks.shape[-1])))
    return torch.cat(judged, 2)


def in_blocks(x: Tensor, block: int, beyond: float = 0.0) -> Tensor:
    """The last dimension of x in blocks, [..., n, block], what lies beyond the text filled with `beyond`."""
    return F.pad(x, (0, -x.shape[-1] % block), value=beyond).unflatten(-1, (-1, block))


def last_queries(q: Tensor, k: Tensor, queries: int, scoring: Scoring) -> tuple[Tensor, Tensor]:
    """Attention of the last `queries` queries summed by key and by distance, both [B, H, T]."""
    length = q.shape[2]
    queries = min(queries, length)
    start = length - queries
    scores = scoring.scores(q[:, :, start:], k)  # [B, H, n, T]
    distance = torch.arange(start, length, device=q.device)[:, None] - torch.arange(length, device=q.device)
    weights = torch.softmax(scores.masked_fill(distance < 0, -torch.inf), -1)
    places = distance.clamp(min=0).flatten().expand(*weights.shape[:2], -1)
    return weights.sum(2), torch.zeros_like(weights[:, :, 0]).scatter_add_(-1, places, weights.flatten(2))


def crossed_blocks(columns: Tensor, diagonals: Tensor, block: int) -> Tensor:
    """The blocks that kept columns and diagonals cross, of bool [B, H, T] by key and by distance: [B, H, n, n]."""
    length = columns.shape[-1]
    count = -(-length // block)
    by_column = in_blocks(columns, block, False).any(-1)  # [B, H, n]
    distance = torch.arange(length, device=columns.device)
    near = torch.zeros(*columns.shape[:2], count + 1, dtype=torch.bool, device=columns.device)
    for blocks_back in (distance // block, -(-distance // block)):  # a diagonal runs through two blocks of each row
        crossings = torch.zeros_like(near, dtype=torch.int32)
        near |= crossings.scatter_add_(-1, blocks_back.expand_as(columns), diagonals.int()) > 0
    places = torch.arange(count, device=columns.device)
    back = places[:, None] - places  # [n, n]
    return by_column[:, :, None] | near[:, :, back.clamp(min=0)]


def largest(sums: Tensor, count: int) -> Tensor:
    """bool like sums [..., N]: the `count` largest."""
    best = sums.topk(min(count, sums.shape[-1]), -1).indices
    return torch.zeros_like(sums, dtype=torch.bool).scatter_(-1, best, True)


def fewest_reaching(sums: Tensor, share: float) -> Tensor:
    """bool like sums [..., N] from 0: the fewest that hold `share` of the total, the largest first."""
    ordered, order = sums.double().sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(-1) - ordered
    needed = (before < share * ordered.sum(-1, keepdim=True)) & (ordered > 0)
    return torch.zeros_like(sums, dtype=torch.bool).scatter_(-1, order, needed)
