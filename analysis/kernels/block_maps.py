"""What estimates of block-sparse prefill share: scores of blocks, the largest of them, and the blocks that lines cross.

A block is `block` queries by `block` keys, n = ceil(T / block); a map is bool [B, H, n, n] for every head. The rules
that make maps stand in their methods' files.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from .blocks import BLOCK
from .pool import AT_ONCE, accelerated
from .scoring import Scoring

# Of scores that are made at once on a processor: they stay in the cache.
BYTES = 8 << 20


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
    for start, stop in _row_spans(length, block):
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


def _row_spans(length: int, block: int) -> list[tuple[int, int]]:
    """(start, stop) of rows that are judged at once: whole blocks, several where they are small, then what remains."""
    complete, step = length // block * block, max(1, BLOCK // block) * block
    spans = [(start, min(start + step, complete)) for start in range(0, complete, step)]
    return spans + ([(complete, length)] if complete < length else [])


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
