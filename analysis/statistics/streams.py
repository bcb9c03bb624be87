"""How the seam is read: a stand-in for a method that computes what dense attention computes, and measures every row of
it on the way.

Where a text needs no mask, one thread per core takes a head at a time: scores of a block, one compiled pass over its
rows, values. Where there is padding, a sliding window or a soft cap, the seam computes, and the rows are measured on a
copy of its scores. On a GPU, or without numba, the same numbers come from torch.
"""

import threading
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..kernels.pool import each
from ..kernels.rank import PEAKS, compiled, top_p_rank
from ..seam.attention import Block
from ..seam.calls import Attended, Call
from ..seam.hooks import Hooks

KERNEL = "streamed statistics"
BLOCK_BYTES = 1 << 20  # scores of one head at once: they stay in the second cache of a core
GPU_BYTES = 256 << 20
BINS = 32  # of distance: the token itself, 1, 2 to 3, 4 to 7, ... tokens back


@dataclass(frozen=True)
class About:
    """What is asked of every row, and the texts [B, T]: `first` [B] the first real token's place, `real` bool,
    `earlier` int64 where a token last stood before (-1: nowhere), `ids` the tokens."""

    mass: float
    window: int
    without_first: bool
    more: bool
    first: torch.Tensor
    real: torch.Tensor
    earlier: torch.Tensor
    ids: torch.Tensor


def by_torch(scores: torch.Tensor, start: int, about: About) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries start..start + n of all heads: scores float32 [B, H, n, m], -inf where a key is not visible.

    The compiled twin is `analysis.kernels.rows`; a test holds them together.
    -> (weights [B, H, n, m] summing to 1, or to 0 where no key is visible; found [B, H, n, 9], NaN where not defined;
    mass by distance [B, H, BINS], summed over the queries and zero without `more`).
    """
    texts, heads, rows, keys = scores.shape
    place = torch.arange(keys, device=scores.device)
    query = torch.arange(start, start + rows, device=scores.device)
    back = query[:, None] - place  # [n, m]
    weights = scores.softmax(-1).nan_to_num_(0.0)
    first = about.first.view(-1, 1, 1, 1)
    sink = weights.gather(-1, first.expand(texts, heads, rows, 1))[..., 0]
    p = weights
    if about.without_first:
        p = scores.masked_fill(place == first, float("-inf")).softmax(-1).nan_to_num_(0.0)
    ids = about.ids
    follows = torch.zeros(texts, rows, keys, dtype=torch.bool, device=scores.device)
    follows[:, :, 1:] = (ids[:, query, None] == ids[:, None, : keys - 1]) & (back[:, 1:] > 0)
    begin = about.first + int(about.without_first)
    real_key = (place >= begin[:, None]) & about.real[:, :keys]
    follows[:, :, 1:] &= (real_key[:, 1:] & about.real[:, : keys - 1])[:, None]
    previous = (p * (back == 1)).sum(-1)
    no_previous = (query <= begin[:, None]) | ~about.real[:, (query - 1).clamp(min=0)]  # [B, n]
    numbers = (
        torch.special.entr(p).sum(-1),
        p.amax(-1),
        top_p_rank(p, about.mass).float().to(p.device),
        sink,
        (p * (back < about.window)).sum(-1),
        (p * back).sum(-1),
        previous.masked_fill(no_previous[:, None], torch.nan),
        (p * follows[:, None]).sum(-1).masked_fill(~follows.any(-1)[:, None], torch.nan),
    )
    peaks = _far_peaks(p, scores[:, :1] > float("-inf"), back, place, about) if about.more else sink * torch.nan
    measured = torch.stack(torch.broadcast_tensors(*numbers, peaks), -1).double()  # [B, H, n, 9]
    real = about.real[:, None, query]
    empty = (p.sum(-1) <= 0) & real
    measured[empty] = torch.nan
    if about.without_first:
        measured[..., 3] = torch.where(empty, sink.double(), measured[..., 3])
    measured[(~real | (weights.sum(-1) <= 0)).expand(texts, heads, rows)] = torch.nan
    distance = torch.zeros(texts, heads, BINS, device=p.device)
    if about.more:
        p = p * real[..., None]
        bins = torch.bucketize(back.clamp(min=0), 2 ** torch.arange(BINS - 1, device=p.device), right=True)
        distance.index_add_(2, bins.flatten(), p.flatten(2))
    return weights, measured, distance


def _far_peaks(p: Tensor, visible: Tensor, back: Tensor, place: Tensor, about: About) -> torch.Tensor:
    """`far_peaks` of weights p [B, H, n, m], of which `visible` [B, 1, n, m] can be read, NaN without a far key."""
    first = about.first.view(-1, 1, 1, 1)
    far = visible & (back >= about.window) & (place > first)
    visible_keys = (visible & (place >= first + int(about.without_first))).sum(-1)
    count = far.sum(-1)  # [B, 1, n]
    strongest = (p * far).topk(min(PEAKS, p.shape[-1]), -1).values.sum(-1)
    return (strongest - count.clamp(max=PEAKS) / visible_keys.clamp(min=1)).masked_fill(count == 0, torch.nan)


class Reader(Hooks):
    """What `apply` takes for a method while a `HeadReading` measures: dense attention, each block of it looked at."""

    def __init__(self, reading: Any) -> None:
        self.reading = reading
        # What one unmasked layer's even head added: equal in all of them.
        self.even: list | None = None
        self.scratch = threading.local()

    def encode_tokens(
        self, layer: int, query: Tensor, key: Tensor, past: int, module: nn.Module, tables: tuple[Tensor, Tensor] | None
    ) -> None:
        """Look at the numerics of a layer, where that is asked for; nothing is kept."""
        if self.reading.numerics is not None:
            self.reading.numerics.look(layer, query, key, module)

    def scores(self, block: Block) -> torch.Tensor:
        """The seam's own path: measure a copy of its scores, and as one head more reading all visible keys alike."""
        hidden = ~block.visible
        measured = block.scores.float().masked_fill(hidden, float("-inf"))  # [B, H, n, m]
        even = torch.zeros_like(measured[:, :1]).masked_fill(hidden, float("-inf"))
        start = int(block.rows[0])
        if measured.is_cuda or not compiled():
            self._by_torch(block.layer, torch.cat([measured, even], 1), start)
            return block.scores
        heads = measured.shape[1]

        # All texts of a head in one thread: they add to the same sums.
        def one(head: int) -> None:
            for text, rows in enumerate(measured[:, head] if head < heads else even[:, 0]):
                self._measure(block.layer, text, head, rows.contiguous(), start)

        each(one, range(heads + self.reading.more))
        return block.scores

    def attend(self, call: Call) -> Attended:
        """A whole text without a mask: dense attention and its statistics in one pass over each block."""
        if call.query.is_cuda or not compiled():
            return Attended(self._attend_torch(call), KERNEL, "Rows are measured by torch.")
        query, key, value = call.query, call.key, call.value
        texts, heads, length = query.shape[:3]
        repeat = heads // key.shape[1]
        size = self.reading.query_block or max(1, BLOCK_BYTES // 4 // length)
        out = torch.empty_like(query)

        def one(head: int) -> None:
            for text in range(texts):
                q = query[text, head].float() * call.scaling  # [T, D]
                k, v = key[text, head // repeat].float().T, value[text, head // repeat].float()
                for start in range(0, length, size):
                    stop = min(start + size, length)
                    weights = self._room(stop - start, stop)
                    torch.mm(q[start:stop], k[:, :stop], out=weights)
                    totals = self._measure(call.layer, text, head, weights, start)
                    out[text, head, start:stop] = torch.mm(weights, v[:stop]) / totals[:, None]

        self.measure_even(call.layer, texts, length, size)
        each(one, range(heads))
        return Attended(out, KERNEL, "Scores, rows and values of a head in one pass over each block.")

    def _measure(self, layer: int, text: int, head: int, rows: torch.Tensor, start: int) -> torch.Tensor:
        """Measure one head's rows [n, m] float32, which become weights; returns their sums [n]."""
        return torch.from_numpy(self.reading.add(layer, text, head, rows.numpy(), start))

    def measure_even(self, layer: int, texts: int, length: int, size: int) -> None:
        """What a head that reads all alike gives in a layer without a mask, where that is asked for: of the first layer
        by blocks of `size` queries, of the others the same."""
        even = self.reading.heads
        if not self.reading.more:
            return
        if self.even is not None:
            self.reading.add_sums(layer, even, self.even)
            return
        before = self.reading.sums_of(layer, even)
        for text in range(texts):
            for start in range(0, length, size):
                stop = min(start + size, length)
                self._measure(layer, text, even, self._room(stop - start, stop).zero_(), start)
        self.even = [b - a for a, b in zip(before, self.reading.sums_of(layer, even), strict=True)]

    def _room(self, rows: int, keys: int) -> torch.Tensor:
        """A float32 buffer [rows, keys] that the thread keeps."""
        room = getattr(self.scratch, "room", None)
        if room is None or room.numel() < rows * keys:
            room = self.scratch.room = torch.empty(rows * keys)
        return room[: rows * keys].view(rows, keys)

    def _by_torch(self, layer: int, scores: torch.Tensor, start: int) -> torch.Tensor:
        """Scores [B, H + 1, n, m], -inf where a key is not visible -> weights that sum to 1 or, for no key, to 0."""
        weights, measured, distance = by_torch(scores, start, self.reading.about(scores.device))
        self.reading.add_many(layer, start, measured.cpu().numpy(), distance.cpu().numpy())
        return weights

    def _attend_torch(self, call: Call) -> torch.Tensor:
        query, key, value = call.query, call.key, call.value
        heads, length = query.shape[1:3]
        key, value = (x.float().repeat_interleave(heads // key.shape[1], 1) for x in (key, value))
        room = GPU_BYTES if query.is_cuda else BLOCK_BYTES
        size = self.reading.query_block or max(1, room // (4 * len(query) * (heads + 1) * length))
        out = torch.empty_like(query)
        for start in range(0, length, size):
            stop = min(start + size, length)
            scores = query[:, :, start:stop].float() @ key[:, :, :stop].transpose(2, 3) * call.scaling
            places = torch.arange(stop, device=query.device)
            future = places > places[start:, None]
            scores = torch.cat([scores, torch.zeros_like(scores[:, :1])], 1).masked_fill_(future, float("-inf"))
            weights = self._by_torch(call.layer, scores, start)
            out[:, :, start:stop] = weights[:, :heads] @ value[:, :, :stop]
        return out
