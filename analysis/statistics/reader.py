"""How the seam is read: a stand-in for a method that computes what dense attention computes, and measures every row of
it on the way; watchers see the probabilities, and queries and keys may be kept.

Where a text needs no mask, one thread per core takes a head at a time: scores of a block, one compiled pass over its
rows, values. Where there is padding, a sliding window or a soft cap, the seam computes, and the rows are measured on a
copy of its scores. On an accelerator the same numbers come from torch.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..kernels.native import measured
from ..kernels.pool import accelerated, each
from ..seam.attention import Block
from ..seam.calls import MASKED, Attended, Call, CosSin
from ..seam.hooks import Hooks
from .by_torch import by_torch
from .states import BLOCK_BYTES, States

KERNEL = "streamed statistics"
# Scores of all heads at once where watchers see a block whole.
WATCHED_BYTES = 8 << 20
GPU_BYTES = 256 << 20
Watch = Callable[[Block, Tensor], None]  # sees the probabilities [1, H, n, m] of a block of queries
Enter = Callable[[int, Tensor], None]  # sees what enters a layer, [T, d], before its attention


class Reader(Hooks):
    """What `apply` takes for a method while a `HeadReading` measures.

    `watchers`, `enter` and `keep` are for one text without padding. `watchers` see every block, whose `scores` are no
    longer there: the probabilities stand in their place. `enter` is called before each layer. `keep`: afterwards
    `states` holds queries and keys of every layer that needed no mask.
    """

    def __init__(
        self, reading: Any, watchers: Sequence[Watch] = (), enter: Enter | None = None, keep: bool = False
    ) -> None:
        self.reading, self.watchers, self.enter, self.keep = reading, watchers, enter, keep
        self.states: dict[int, States] = {}
        # What one unmasked layer's even head added: equal in all of them.
        self._even: list[np.ndarray] | None = None
        self._scratch = threading.local()

    def token_features(self, layer: int, hidden: Tensor, real: Tensor | None) -> None:
        """Show what enters a layer; nothing is remembered of it here."""
        if self.enter is not None:
            self.enter(layer, hidden[0])

    def encode_tokens(
        self, layer: int, query: Tensor, key: Tensor, past: int, module: nn.Module, tables: CosSin
    ) -> None:
        """Look at the numerics of a layer, where that is asked for; nothing is kept."""
        if self.reading.numerics is not None:
            self.reading.numerics.look(layer, query, key, module)

    def scores(self, block: Block) -> Tensor:
        """The seam's own path: measure a copy of its scores, and as one head more reading all visible keys alike."""
        hidden = ~block.visible
        logits, start = block.scores.float().masked_fill(hidden, float("-inf")), block.first_row  # [B, H, n, m]
        if block.sinks is not None or block.chosen or block.entries is not None:
            self._add_own(block, torch.logsumexp(logits, -1), start)
        even = torch.zeros_like(logits[:, :1]).masked_fill(hidden[:, :1], float("-inf"))
        logits = torch.cat([logits, even], 1)
        if accelerated(logits):
            self._by_torch(block.layer, logits, start)
            return block.scores

        # All texts of a head in one thread: they add to the same sums.
        def one(head: int) -> None:
            for text in range(len(logits)):
                self.reading.add(block.layer, text, head, logits[text, head].numpy(), start)

        each(one, range(self.reading.heads + self.reading.more))
        return block.scores

    def _add_own(self, block: Block, among_visible: Tensor, start: int) -> None:
        """What a learned sink takes and what compressed entries do, and of dense attention what the model's own indexer
        selected; `among_visible` [B, H, n] the logarithm of the softmax's sum over visible keys."""
        beside = {}
        if block.sinks is not None:
            beside["sink_mass"] = block.sinks.float()[:, None].expand_as(among_visible)
        if block.entries is not None:
            beside["entry_mass"] = torch.logsumexp(block.entries.scores.float(), -1)
        for name, sum_of_it in beside.items():
            others = [among_visible, *(logs for other, logs in beside.items() if other != name)]
            share = torch.sigmoid(sum_of_it - torch.stack(others).logsumexp(0))
            self.reading.add_own(name, block.layer, share, start)
        if block.chosen:
            real = (block.columns >= block.first[:, None])[:, None, None]
            readable = real & (block.distances() >= 0)
            among_all = torch.logsumexp(block.scores.float().masked_fill(~readable, float("-inf")), -1)
            self.reading.add_own("selected_mass", block.layer, (among_visible - among_all).exp(), start)

    def reweight(self, block: Block, probabilities: Tensor) -> Tensor:
        """On the seam's own path: show the softmax as it is."""
        self._show(block, probabilities)
        return probabilities

    def see_gate(self, layer: int, out: Tensor, gated: Tensor) -> None:
        """Measure the share of a layer's outputs that its gate lets through."""
        # where a head gave exactly nothing, nothing tells
        passed = (gated.float() / out.float()).masked_fill(out == 0, float("nan")).nanmean(-1)  # [B, T, H]
        self.reading.add_own("gate", layer, passed.transpose(1, 2), 0)

    def attend(self, call: Call) -> Attended:
        """A whole text without a mask: dense attention and its statistics in one pass over each block."""
        if self.keep:
            query, key = (x[0].float() for x in (call.query, call.key))
            self.states[call.layer] = States(query, key, float(call.scaling), None)
        if accelerated(call.query) and self.watchers:
            return Attended(None, MASKED, "Rows are measured by torch, and the probabilities are watched.")
        if accelerated(call.query):
            return Attended(self._attend_torch(call), KERNEL, "Rows are measured by torch.")
        why = "Scores, rows and values of a head in one pass over each block."
        if not self.watchers and measured.runs(call.query, call.value):
            self._measure_even(call.layer, len(call.query), call.query.shape[2])
            states = call.query, call.key, call.value
            return Attended(self.reading.attend(call.layer, *states, float(call.scaling)), KERNEL, why)
        return Attended(self._attend(call), KERNEL, why)

    def _attend(self, call: Call) -> Tensor:
        texts, heads, length = call.query.shape[:3]
        query, key, value = call.query.float() * call.scaling, call.key.float(), call.value.float()
        shared, out = heads // key.shape[1], torch.empty_like(call.query)

        def rows(text: int, head: int, start: int, stop: int, weights: Tensor) -> None:
            torch.mm(query[text, head, start:stop], key[text, head // shared, :stop].T, out=weights)
            totals = self._measure(call.layer, text, head, weights, start)[:, None]
            out[text, head, start:stop] = torch.mm(weights, value[text, head // shared, :stop]) / totals
            if self.watchers:
                weights /= totals

        per_row = WATCHED_BYTES // heads if self.watchers else BLOCK_BYTES
        size = self.reading.query_block or max(1, min(length, per_row // 4 // length))
        self._measure_even(call.layer, texts, length)
        spans = [(start, min(start + size, length)) for start in range(0, length, size)]
        if not self.watchers:

            def one(head: int) -> None:
                for text in range(texts):
                    for start, stop in spans:
                        rows(text, head, start, stop, self._room(stop - start, stop))

            each(one, range(heads))
            return out
        places, first = torch.arange(length), torch.zeros(1, dtype=torch.long)
        for start, stop in spans:
            weights = self._room(heads * (stop - start), stop).view(heads, stop - start, stop)

            def one_block(head: int, start: int = start, stop: int = stop, weights: Tensor = weights) -> None:
                rows(0, head, start, stop, weights[head])

            each(one_block, range(heads))
            queries, columns = places[start:stop], places[:stop]
            visible = (columns <= queries[:, None])[None, None]
            self._show(Block(call.layer, weights[None], visible, queries, columns, first), weights[None])
        return out

    def _show(self, block: Block, probabilities: Tensor) -> None:
        watching = lambda watch: watch(block, probabilities)  # noqa: E731  each adds to sums of its own
        if accelerated(probabilities):
            for watch in self.watchers:
                watching(watch)
        else:
            each(watching, self.watchers)

    def _measure(self, layer: int, text: int, head: int, rows: Tensor, start: int) -> Tensor:
        """Measure one head's rows [n, m] float32, which become weights; returns their sums [n]."""
        return torch.from_numpy(self.reading.add(layer, text, head, rows.numpy(), start))

    def _measure_even(self, layer: int, texts: int, length: int) -> None:
        """What a head that reads all alike gives in a layer without a mask, where that is asked for: of the first layer
        by blocks of queries, of the others the same."""
        even = self.reading.heads
        if not self.reading.more:
            return
        if self._even is not None:
            self.reading.add_sums(layer, even, self._even)
            return
        before, size = self.reading.sums_of(layer, even), max(1, min(length, BLOCK_BYTES // 4 // length))
        for text in range(texts):
            for start in range(0, length, size):
                stop = min(start + size, length)
                self._measure(layer, text, even, self._room(stop - start, stop).zero_(), start)
        self._even = [b - a for a, b in zip(before, self.reading.sums_of(layer, even), strict=True)]

    def _room(self, rows: int, keys: int) -> Tensor:
        """A float32 buffer [rows, keys] that the thread keeps."""
        room = getattr(self._scratch, "room", None)
        if room is None or room.numel() < rows * keys:
            room = self._scratch.room = torch.empty(rows * keys)
        return room[: rows * keys].view(rows, keys)

    def _by_torch(self, layer: int, scores: Tensor, start: int) -> Tensor:
        """Scores [B, H + 1, n, m], -inf where a key is not visible -> weights that sum to 1 or, for no key, to 0."""
        weights, numbers, distance = by_torch(scores, start, self.reading.about(scores.device))
        self.reading.add_many(layer, start, numbers, distance)
        return weights

    def _attend_torch(self, call: Call) -> Tensor:
        query, key, value = call.query, call.key, call.value
        heads, length = query.shape[1:3]
        key, value = (x.float().repeat_interleave(heads // key.shape[1], 1) for x in (key, value))
        size = self.reading.query_block or max(1, GPU_BYTES // (4 * len(query) * (heads + 1) * length))
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
