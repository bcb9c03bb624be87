"""Attention over the k largest scores of every query: all keys are scored, and only the values of those kept are read.

Calibrated Sparse Attention (CSA), step 4. Nothing of size T x T is held: queries go in blocks. On a processor the
choice and the sum run compiled, row by row; elsewhere as operations of torch. Ties with the k-th score are all kept
(definitions: one rule for the kernels and the reference), and every kernel says how many keys it read.

Compiled, the k largest of a row are found by a lower bound in vector instructions, then an exact search among the few
values above it. Column j belongs to lane j mod `lanes`. As long as there are at least k lanes, the k-th largest of the
lanes' maxima is no larger than the k-th largest score, and hardly more than k scores reach it: only those are searched.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .jit import jit
from .pool import AT_ONCE, accelerated, each, on_host
from .scoring import softmax

# Queries of a key head at once, and their scores: they stay in the cache.
BLOCK_ROWS, BLOCK_VALUES = 256, 1 << 20
# Scores at once where torch does it all on a processor.
TORCH_VALUES = 16 << 20
# Lanes come in multiples of this.
LANE = 64
# Of the range of values, before they are searched one by one.
HALVINGS = 32


def smallest_kept(scores: Tensor, counts: Tensor | list[int]) -> Tensor:
    """The score that a key must reach, [B, H, n, 1]: the counts-th largest, -inf where there are no more keys.

    scores [B, H, n, Tk] in float32 or better, -inf where a key is hidden; counts per head [H], or per query [B, H, n].
    """
    total = scores.shape[-1]
    if isinstance(counts, list) and accelerated(scores):
        # the host knows the counts: an accelerator is told nothing
        best = scores.topk(max((count for count in counts if count < total), default=1), sorted=True).values
        every = torch.full_like(best[:, 0, :, 0], -math.inf)
        heads = [best[:, head, :, count - 1] if count < total else every for head, count in enumerate(counts)]
        return torch.stack(heads, 1)[..., None]
    counts = torch.as_tensor(counts)
    if counts.dim() == 3:
        counts = counts.expand(scores.shape[:3]).clamp(1, total)
        most = on_host(counts.max(), "most keys")
        smallest = scores.topk(most, sorted=True).values.gather(-1, counts.long()[..., None] - 1)
        return smallest.masked_fill(counts[..., None] == total, -math.inf)
    smallest, array = scores.new_full((*scores.shape[:3], 1), -math.inf), scores.detach().numpy()

    def one(head: int) -> None:
        # in vector instructions where there are any: several times faster than torch
        place = total - int(counts[head])
        smallest[:, head] = torch.from_numpy(np.partition(array[:, head], place, axis=-1)[..., place, None])

    each(one, (counts < total).nonzero()[:, 0].tolist())
    return smallest


@torch.no_grad()
def topk_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    counts: Tensor | list[int],
    scale: float | None = None,
    past: int = 0,
    sink_logits: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Causal attention of each query to its `counts` keys of largest score, exact.

    q [B, H, n, D], the queries that follow `past` tokens; k and v [B, G, past + n, D] with G a divisor of H; counts
    one per head [H] or one per query [B, H, n] -> (out [B, H, n, D], how many keys each query read, int32 [B, H, n]).
    `scale` is 1/sqrt(D) unless given. `sink_logits` [H]: learned sinks, one more term of every sum and none of the keys
    that are counted. Scores and softmax are in float32 (float64 where q is).
    """
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if accelerated(q) and isinstance(counts, list):
        return _by_torch(q, k, v, [max(1, count) for count in counts], scale, past, sink_logits)
    counts = torch.as_tensor(counts, dtype=torch.int32, device=q.device)
    counts = (counts[None, :, None] if counts.dim() == 1 else counts).clamp(min=1).expand(q.shape[:3])
    if accelerated(q) or q.dtype == torch.float64:
        return _by_torch(q, k, v, counts, scale, past, sink_logits)
    # of a head without one: it weighs nothing
    sinks = torch.full(q.shape[1:2], -math.inf) if sink_logits is None else sink_logits.detach().float()
    if q.shape[2] == 1:
        return _one_query(q, k, v, counts, scale, sinks)
    return _by_rows(q, k, v, counts, scale, past, sinks)


def _by_rows(
    q: Tensor, k: Tensor, v: Tensor, counts: Tensor, scale: float, past: int, sinks: Tensor
) -> tuple[Tensor, Tensor]:
    """Key head by key head, the query heads that share it in one block of queries."""
    (batch, heads, length, size), kv_heads = q.shape, k.shape[1]
    out, read_counts = torch.empty_like(q), torch.empty(batch, heads, length, dtype=torch.int32)
    shared, k, v = heads // kv_heads, k.float(), v.float().contiguous()

    def block(place: tuple[int, int, int, int]) -> None:
        b, g, start, stop = place
        heads_of_group, used, row_count = slice(g * shared, (g + 1) * shared), past + stop, shared * (stop - start)
        queries = q[b, heads_of_group, start:stop].reshape(row_count, size).float()
        scores = (queries @ k[b, g, :used].T).mul_(scale)  # [many, used]; the reference rounds in this order too
        lengths = torch.arange(past + start + 1, used + 1, dtype=torch.int32).repeat(shared)
        wanted = counts[b, heads_of_group, start:stop].reshape(row_count).contiguous()
        row_out, read = scores.new_empty(row_count, size), torch.empty(row_count, dtype=torch.int32)
        beside = sinks[heads_of_group].repeat_interleave(stop - start)
        _attend(*(x.numpy() for x in (scores, lengths, wanted, beside, v[b, g], row_out, read)))
        out[b, heads_of_group, start:stop] = row_out.view(shared, stop - start, size)
        read_counts[b, heads_of_group, start:stop] = read.view(shared, stop - start)

    # blocks of queries whose scores stay in the cache
    spans, start = [], 0
    while start < length:
        rows = max(1, min(BLOCK_ROWS, BLOCK_VALUES // (past + start + 1)) // shared)
        spans.append((start, min(start + rows, length)))
        start += rows
    places = [(b, g, *span) for b in range(batch) for g in range(kv_heads) for span in spans]
    each(block, places[::-1])  # the longest rows first
    return out, read_counts


def _one_query(q: Tensor, k: Tensor, v: Tensor, counts: Tensor, scale: float, sinks: Tensor) -> tuple[Tensor, Tensor]:
    """One query after a past: all scores at once, then for each key head the rows of the heads that share it."""
    (batch, heads, _, size), kv_heads = q.shape, k.shape[1]
    shared = heads // kv_heads
    queries = q.float().reshape(batch, kv_heads, shared, size)
    scores = (queries @ k.float().transpose(2, 3)).mul_(scale).numpy()  # [B, G, shared, Tk]
    values, wanted = v.float().numpy(), counts.reshape(batch, kv_heads, shared).numpy()
    out, read_counts = np.empty(queries.shape, np.float32), np.empty(wanted.shape, np.int32)
    lengths, beside = np.full(shared, k.shape[2], np.int32), sinks.view(kv_heads, shared).contiguous().numpy()
    for cell in np.ndindex(batch, kv_heads):
        head_values = np.ascontiguousarray(values[cell])
        _attend(scores[cell], lengths, wanted[cell], beside[cell[1]], head_values, out[cell], read_counts[cell])
    shape = batch, heads, 1
    return torch.from_numpy(out).view(*shape, size).to(q.dtype), torch.from_numpy(read_counts).view(shape)


def _by_torch(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    counts: Tensor | list[int],
    scale: float,
    past: int,
    sink_logits: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Blocks of queries of all heads; of one query the values that are kept are gathered, but on an accelerator, which
    would have to tell the host how many there are with those that tie."""
    batch, heads, length, _ = q.shape
    kind = torch.promote_types(q.dtype, torch.float32)
    k, v = (x.repeat_interleave(heads // x.shape[1], 1) for x in (k, v))
    out, read_counts = torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.int32)
    columns = torch.arange(past + length, device=q.device)
    values = AT_ONCE // 4 if accelerated(q) else TORCH_VALUES
    rows = max(1, values // (batch * heads * len(columns)))
    for start in range(0, length, rows):
        stop = min(start + rows, length)
        used, block_counts = past + stop, counts if isinstance(counts, list) else counts[:, :, start:stop]
        scores = (q[:, :, start:stop].to(kind) @ k[:, :, :used].to(kind).transpose(2, 3)).mul_(scale)
        future = columns[:used] > columns[past + start : used, None]
        scores = scores.masked_fill_(future, -math.inf)
        read = (scores >= smallest_kept(scores, block_counts)) & ~future
        read_counts[:, :, start:stop] = read.sum(-1)
        largest = used if accelerated(q) or length > 1 else int(read_counts.max())
        if largest < used:
            best = scores.masked_fill(~read, -math.inf).topk(largest, sorted=False)  # [B, H, 1, most]
            places = best.indices[:, :, 0, :, None].expand(-1, -1, -1, v.shape[-1])
            block_out = softmax(best.values, sink_logits) @ v[:, :, :used].gather(2, places).to(kind)
        else:
            block_out = softmax(scores.masked_fill_(~read, -math.inf), sink_logits) @ v[:, :, :used].to(kind)
        out[:, :, start:stop] = block_out
    return out, read_counts


@jit(error_model="numpy")
def _kth(values: np.ndarray, count: int, k: int) -> Any:
    """The k-th largest of the first `count` values, 1 <= k <= count; their order is lost."""
    low, high, place = 0, count - 1, k - 1
    while low < high:
        pivot = values[(low + high) >> 1]
        i, j = low, high
        while i <= j:
            while values[i] > pivot:
                i += 1
            while values[j] < pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if place <= j:
            high = j
        elif place >= i:
            low = i
        else:
            break
    return values[place]


@jit(error_model="numpy")
def _reach(values: np.ndarray, count: int, edge: Any) -> Any:
    """How many of the first `count` values are `edge` or more."""
    reached = np.int32(0)
    for place in range(count):
        reached += np.int32(values[place] >= edge)
    return reached


@jit(error_model="numpy")
def _cut(values: np.ndarray, count: int, k: int, spare: int) -> Any:
    """A number that at least k and at most k + spare of the first `count` values reach; all that tie with the k-th
    count as one. -inf where only k or fewer are no -inf. The order of the values is lost."""
    low, high = np.float32(np.inf), np.float32(-np.inf)
    for place in range(count):
        value = values[place]
        high = value if value > high else high
        low = value if value < low and value > -np.inf else low
    if _reach(values, count, low) <= k:
        return np.float32(-np.inf)
    for _ in range(HALVINGS):
        middle = np.float32(0.5) * (low + high)
        reached = _reach(values, count, middle)
        if k <= reached <= k + spare:
            return middle
        if reached > k:
            low = middle
        else:
            high = middle
    return _kth(values, count, k)


@jit(error_model="numpy")
def _above(
    row: np.ndarray, length: int, k: int, lanes: int, best: np.ndarray, places: np.ndarray, values: np.ndarray
) -> Any:
    """Collects (place, value) of the scores that may be among the k largest of `length`; returns how many."""
    for lane in range(lanes):
        best[lane] = row[lane]
    aligned = length // lanes * lanes
    for start in range(lanes, aligned, lanes):
        for lane in range(lanes):
            value = row[start + lane]
            best[lane] = value if value > best[lane] else best[lane]
    for lane in range(length - aligned):
        best[lane] = row[aligned + lane] if row[aligned + lane] > best[lane] else best[lane]
    bound, candidates = _cut(best, lanes, k, k // 8), 0
    for place in range(length):
        places[candidates] = place
        values[candidates] = row[place]
        candidates += row[place] >= bound
    return candidates


@jit(error_model="numpy")
def _candidates(row: np.ndarray, length: int, k: int, best: np.ndarray, places: np.ndarray, values: np.ndarray) -> Any:
    """As `_above`, or all of a row that is too short for it to pay."""
    lanes = -(-2 * k // LANE) * LANE
    if 2 * lanes < length:
        return _above(row, length, k, lanes, best, places, values)
    for place in range(length):
        places[place] = place
        values[place] = row[place]
    return length


@jit(error_model="numpy", fastmath={"contract", "reassoc"})
def _attend(
    scores: np.ndarray,
    lengths: np.ndarray,
    counts: np.ndarray,
    sinks: np.ndarray,
    value: np.ndarray,
    out: np.ndarray,
    read_counts: np.ndarray,
) -> None:
    """Softmax over the counts[r] largest of the first lengths[r] of each row of scores [R, n] beside its learned sink
    sinks[r], -inf for none, times value [n, D], into out [R, D]; kept [R] how many were read, ties with the last one
    included. All float32 and int32."""
    size, room = value.shape[1], scores.shape[1] + 1
    best, places = np.empty(room, np.float32), np.empty(room, np.int32)
    values, searched = np.empty(room, np.float32), np.empty(room, np.float32)
    total = np.empty(size, np.float32)
    for r in range(scores.shape[0]):
        k, smallest = counts[r], np.float32(-np.inf)
        candidates = _candidates(scores[r], lengths[r], k, best, places, values)
        if k < candidates:
            searched[:candidates] = values[:candidates]
            smallest = _cut(searched, candidates, k, 0)
        largest, read = max(values[0], sinks[r]), 0
        for place in range(candidates):
            largest = values[place] if values[place] > largest else largest
            searched[read], places[read] = values[place], places[place]
            read += values[place] >= smallest
        weight = np.exp(sinks[r] - largest)
        for place in range(read):
            searched[place] = np.exp(searched[place] - largest)
            weight += searched[place]
        total[:] = 0.0
        for place in range(read):
            row = value[places[place]]
            for d in range(size):
                total[d] += searched[place] * row[d]
        for d in range(size):
            out[r, d] = total[d] / weight
        read_counts[r] = read
