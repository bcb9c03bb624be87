"""Which blocks of a prompt are worth reading: estimates of block-sparse prefill, one map [B, H, n, n] for every head.

A block is `block` queries by `block` keys, n = ceil(T / block). Every map is lower triangular and keeps the diagonal:
no query is left without a key. All of them look at the end of what they are given, or at whole blocks of queries: they
are for a prompt that is there as a whole, and a later token changes what an earlier block reads.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from analysis.errors import BadSetting
from analysis.kernels.blocks import BLOCK
from analysis.kernels.scoring import Scoring

SINKS, NEAR = 30, 100  # columns and diagonals that `vertical_slash` always keeps
TOGETHER = 8 << 20  # bytes of scores that are made at once


@torch.no_grad()
def block_map(
    kind: str, q: Tensor, k: Tensor, block: int = BLOCK, scoring: Scoring | None = None, **settings
) -> Tensor:
    """Which blocks each head keeps: bool [B, H, n, n], lower triangular, the diagonal always kept.

    q [B, H, T, D], k [B, G, T, D], rotated; `scoring` how the layer makes scores of them, 1/sqrt(D) unless given; where
    an estimate is a mean of products, a soft cap is put on the mean. Kinds and their settings: `skip_softmax(scale)`,
    `vertical_slash(vertical, slash, queries)`, `flex_prefill(gamma, tau)`, `xattention(stride, threshold)`: see the
    functions of this module. Errors: BadSetting for another kind or setting.
    """
    if kind not in KINDS:
        raise BadSetting(f"There is no block map {kind!r}; there are: {', '.join(KINDS)}.")
    if q.shape[1] % k.shape[1] or q.shape[2:] != k.shape[2:]:
        raise BadSetting(
            f"Queries {list(q.shape)} and keys {list(k.shape)} do not belong together: [B, H, T, D] and [B, G, T, D] "
            "are needed, G a divisor of H."
        )
    known = list(inspect.signature(KINDS[kind]).parameters)[4:]
    if strange := sorted(set(settings) - set(known)):
        raise BadSetting(f"{kind} has no setting {strange[0]!r}; it has: {', '.join(known)}.")
    exact = torch.promote_types(q.dtype, torch.float32)
    blocks = KINDS[kind](q.to(exact), k.to(exact), block, scoring or Scoring.plain(q), **settings)
    return blocks.tril() | torch.eye(blocks.shape[-1], dtype=torch.bool, device=q.device)


def skip_softmax(q: Tensor, k: Tensor, block: int, scoring: Scoring, scale: float = 100.0) -> Tensor:
    """BLASST (arXiv 2512.12087): blocks from left to right; one is kept if in any of its rows its largest score exceeds
    the largest so far plus log(lambda). lambda = scale / T: the share of a key's weight that is thought worth a look.
    """
    length = q.shape[2]
    _between("scale", scale, 0.0, math.inf)
    edge = math.log(scale / length) if scale else -math.inf
    return _by_rows(q, k, block, scoring, lambda scores: rises(scores, block) > edge)


def rises(scores: Tensor, block: int) -> Tensor:
    """How far the largest score of each block of keys lies above the largest before it, in the row where it is most:
    [..., blocks] of scores [..., rows, keys], infinite for the first block. Skip softmax keeps a block whose rise
    exceeds log(lambda), so one pass tells what every lambda would leave out."""
    largest = _blocks(scores, block, -torch.inf).amax(-1)  # [..., rows, blocks]
    before = F.pad(largest.cummax(-1).values[..., :-1], (1, 0), value=-torch.inf)
    return (largest - before).amax(-2)


def vertical_slash(
    q: Tensor, k: Tensor, block: int, scoring: Scoring, vertical: int = 64, slash: int = 256, queries: int = 64
) -> Tensor:
    """MInference (arXiv 2407.02490): the last `queries` queries show which keys all of them read (columns) and at which
    distances they read (diagonals). The `vertical` columns and `slash` diagonals of largest sum are kept, the first 30
    columns and the nearest 100 diagonals always among them. A block is kept when one of these crosses it."""
    for name, value in (("vertical", vertical), ("slash", slash), ("queries", queries)):
        _between(name, value, 1, math.inf)
    columns, diagonals = _last(q, k, queries, scoring)
    columns[..., :SINKS] = torch.inf
    diagonals[..., :NEAR] = torch.inf
    return _lines(_best(columns, vertical), _best(diagonals, slash), block)


def flex_prefill(q: Tensor, k: Tensor, block: int, scoring: Scoring, gamma: float = 0.9, tau: float = 0.1) -> Tensor:
    """FlexPrefill (arXiv 2502.20766): the last block of queries decides, head by head. Where attention between means of
    blocks comes close to the true one (the root of the Jensen-Shannon divergence below `tau`), the head keeps the
    fewest blocks of the whole map that hold the share `gamma` of the mean attention; elsewhere as many columns, and as
    many diagonals, as hold `gamma` of the true one."""
    _between("gamma", gamma, 0.0, 1.0)
    _between("tau", tau, 0.0, 1.0)
    pooled = scoring.scores(_means(q, block), _means(k, block))  # [B, H, n, n]
    count = pooled.shape[-1]
    future = torch.ones(count, count, dtype=torch.bool, device=q.device).triu(1)
    pooled = torch.softmax(pooled.masked_fill(future, -torch.inf), -1)  # [B, H, n, n]
    columns, diagonals = _last(q, k, block, scoring)
    true = _blocks(columns, block).sum(-1)  # [B, H, n]
    close = _divergence(pooled[:, :, -1], true / true.sum(-1, keepdim=True)).sqrt() < tau  # [B, H]
    by_lines = _lines(_reaching(columns, gamma), _reaching(diagonals, gamma), block)
    by_blocks = _reaching(pooled.flatten(2), gamma).unflatten(2, (count, count))
    return torch.where(close[..., None, None], by_blocks, by_lines)


def xattention(q: Tensor, k: Tensor, block: int, scoring: Scoring, stride: int = 8, threshold: float = 0.9) -> Tensor:
    """XAttention (arXiv 2503.16428): scores are summed along antidiagonals of `stride` x `stride` squares, by one
    product of keys side by side and queries side by side in the opposite order. Their softmax, summed in blocks, stands
    for the attention; each row of blocks keeps the fewest that reach the share `threshold`, the first and its own."""
    _between("threshold", threshold, 0.0, 1.0)
    if stride < 1 or block % stride:
        raise BadSetting(f"stride is {stride} and must divide the block of {block}.")
    length = q.shape[2]
    cells, mean = block // stride, replace(scoring, factor=scoring.factor / stride)
    q, k = (F.pad(x, (0, 0, 0, -length % stride)).unflatten(2, (-1, stride)) for x in (q, k))  # [B, H, cells, S, D]
    q, k = q.flip(3).flatten(3), k.flatten(3)

    def kept(scores: Tensor) -> Tensor:
        share = torch.softmax(scores, -1).sum(-2)  # [..., cells]
        return _reaching(_blocks(share, cells).sum(-1), threshold)

    blocks = _by_rows(q, k, cells, mean, kept)
    blocks[..., 0] = True
    return blocks


KINDS = {
    "skip_softmax": skip_softmax,
    "vertical_slash": vertical_slash,
    "flex_prefill": flex_prefill,
    "xattention": xattention,
}


def _by_rows(q: Tensor, k: Tensor, block: int, scoring: Scoring, judge: Callable[[Tensor], Tensor]) -> Tensor:
    """The map [B, H, n, n] of what `judge` makes of the scores [..., rows of a block, keys so far], -inf in the future,
    as [..., blocks so far]: a row of blocks after the other, or several where they are small, and as many heads at once
    as stay in the cache."""
    shared, length = q.shape[1] // k.shape[1], q.shape[2]
    queries = (q * scoring.factor).unflatten(1, (-1, shared)).flatten(0, 1)
    keys = k.flatten(0, 1).transpose(1, 2)  # [B G, D, T]; the queries [B G, H / G, T, D]
    count, judged = -(-length // block), []
    for start, stop in _stretches(length, block):
        rows, own = queries[:, :, start:stop], stop - start
        future = torch.ones(own, own, dtype=torch.bool, device=q.device).triu(1)
        together = max(1, TOGETHER // (shared * own * stop * q.element_size()))
        parts = []
        for mine, read in zip(rows.split(together), keys[..., :stop].split(together), strict=True):
            scores = scoring.capped(mine.flatten(1, 2) @ read).unflatten(1, (shared, own))
            scores[..., start:].masked_fill_(future, -torch.inf)
            parts.append(judge(scores.unflatten(2, (-1, min(block, own)))))  # of [B G, H / G, R, rows, keys so far]
        made = torch.cat(parts).unflatten(0, (len(q), -1)).flatten(1, 2)  # [B, H, R, blocks so far]
        judged.append(F.pad(made, (0, count - made.shape[-1])))
    return torch.cat(judged, 2)


def _stretches(length: int, block: int) -> list[tuple[int, int]]:
    """(start, stop) of rows that are judged at once: whole blocks, several where they are small, then what remains."""
    whole, step = length // block * block, max(1, BLOCK // block) * block
    found = [(start, min(start + step, whole)) for start in range(0, whole, step)]
    return found + ([(whole, length)] if whole < length else [])


def _blocks(x: Tensor, block: int, beyond: float = 0.0) -> Tensor:
    """The last dimension of x in blocks, [..., n, block], what lies beyond the text filled with `beyond`."""
    return F.pad(x, (0, -x.shape[-1] % block), value=beyond).unflatten(-1, (-1, block))


def _last(q: Tensor, k: Tensor, queries: int, scoring: Scoring) -> tuple[Tensor, Tensor]:
    """Attention of the last `queries` queries summed by key and by distance, both [B, H, T]."""
    length = q.shape[2]
    queries = min(queries, length)
    start = length - queries
    scores = scoring.scores(q[:, :, start:], k)  # [B, H, n, T]
    distance = torch.arange(start, length, device=q.device)[:, None] - torch.arange(length, device=q.device)
    weights = torch.softmax(scores.masked_fill(distance < 0, -torch.inf), -1)
    places = distance.clamp(min=0).flatten().expand(*weights.shape[:2], -1)
    return weights.sum(2), torch.zeros_like(weights[:, :, 0]).scatter_add_(-1, places, weights.flatten(2))


def _lines(columns: Tensor, diagonals: Tensor, block: int) -> Tensor:
    """The blocks that kept columns and diagonals cross, of bool [B, H, T] by key and by distance: [B, H, n, n]."""
    length = columns.shape[-1]
    count = -(-length // block)
    by_column = _blocks(columns, block, False).any(-1)  # [B, H, n]
    distance = torch.arange(length, device=columns.device)
    near = torch.zeros(*columns.shape[:2], count + 1, dtype=torch.bool, device=columns.device)
    for blocks_back in (distance // block, -(-distance // block)):  # a diagonal runs through two blocks of each row
        near |= (
            torch.zeros_like(near, dtype=torch.int32).scatter_add_(-1, blocks_back.expand_as(columns), diagonals.int())
            > 0
        )
    back = (torch.arange(count)[:, None] - torch.arange(count)).to(columns.device)  # [n, n]
    return by_column[:, :, None] | near[:, :, back.clamp(min=0)]


def _best(sums: Tensor, count: int) -> Tensor:
    """bool like sums [..., N]: the `count` largest."""
    best = sums.topk(min(count, sums.shape[-1]), -1).indices
    return torch.zeros_like(sums, dtype=torch.bool).scatter_(-1, best, True)


def _reaching(sums: Tensor, share: float) -> Tensor:
    """bool like sums [..., N] from 0: the fewest that hold `share` of the total, the largest first."""
    ordered, order = sums.double().sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(-1) - ordered
    needed = (before < share * ordered.sum(-1, keepdim=True)) & (ordered > 0)
    return torch.zeros_like(sums, dtype=torch.bool).scatter_(-1, order, needed)


def _means(x: Tensor, block: int) -> Tensor:
    """The mean of each block of x [B, heads, T, D], the last one over what it has: [B, heads, n, D]."""
    sizes = x.new_ones(x.shape[2]).split(block)
    sums = F.pad(x, (0, 0, 0, -x.shape[2] % block)).unflatten(2, (-1, block)).sum(3)
    return sums / x.new_tensor([len(part) for part in sizes])[:, None]


def _divergence(a: Tensor, b: Tensor) -> Tensor:
    """Jensen-Shannon divergence in nats of distributions [..., N]."""
    middle = (a + b) / 2
    return ((torch.xlogy(a, a) + torch.xlogy(b, b)) / 2 - torch.xlogy(middle, middle)).sum(-1).clamp(min=0)


def _between(name: str, value: float, low: float, high: float) -> None:
    if isinstance(value, bool) or not low <= value <= high:
        raise BadSetting(f"{name} is {value!r} and must lie between {low:g} and {high:g}.")
