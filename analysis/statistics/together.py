"""One pass over a text for several readers: statistics of all heads, what watchers see of the probabilities, what
enters each layer, and the queries and keys of all heads."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..kernels.pool import each
from ..kernels.rank import compiled
from ..seam.attention import Block
from ..seam.calls import MASKED, Attended, Call
from .states import States
from .streams import KERNEL, Reader

BLOCK_BYTES = 8 << 20  # of scores that are made at once, in one place that is used again
Watch = Callable[[Block, torch.Tensor], None]  # sees the probabilities [1, H, n, m] of a block of queries
Enter = Callable[[int, torch.Tensor], None]  # sees what enters a layer, [T, d], before its attention


class Together(Reader):
    """What `HeadReading.read` takes as its `reader` for one text without padding.

    `watchers` see every block, whose `scores` are no longer there: the probabilities stand in their place. `enter` is
    called before each layer. `keep`: afterwards `states` holds queries and keys of every layer that needed no mask.
    """

    def __init__(
        self, reading: Any, watchers: Sequence[Watch] = (), enter: Enter | None = None, keep: bool = False
    ) -> None:
        super().__init__(reading)
        self.watchers, self.enter, self.keeps = watchers, enter, keep
        self.states: dict[int, States] = {}

    def token_features(self, layer: int, hidden: torch.Tensor, real: torch.Tensor | None) -> None:
        """Show what enters a layer; nothing is remembered of it here."""
        if self.enter is not None:
            self.enter(layer, hidden[0])

    def reweight(self, block: Block, probabilities: torch.Tensor) -> torch.Tensor:
        """On the seam's own path: show the softmax as it is."""
        self._show(block, probabilities)
        return probabilities

    def attend(self, call: Call) -> Attended:
        """A whole text without a mask: a block of queries for all heads at a time, so that watchers see it whole."""
        query, key, value = (x[0].float() for x in (call.query, call.key, call.value))
        if self.keeps:
            self.states[call.layer] = States(query, key, float(call.scaling), None)
        if not self.watchers:
            return super().attend(call)
        if call.query.is_cuda or not compiled():
            return Attended(None, MASKED, "Rows are measured by torch, and the probabilities are watched.")
        query = query * call.scaling
        heads, length = query.shape[:2]
        repeat = heads // len(key)
        size = self.reading.query_block or max(1, min(length, BLOCK_BYTES // (4 * heads * length)))
        room = torch.empty(heads * size * length)
        out = torch.empty_like(call.query)
        places, first = torch.arange(length), torch.zeros(1, dtype=torch.long)
        self.measure_even(call.layer, 1, length, size)
        for start in range(0, length, size):
            stop = min(start + size, length)
            weights = room[: heads * (stop - start) * stop].view(heads, stop - start, stop)

            def one(head: int, start: int = start, stop: int = stop, weights: torch.Tensor = weights) -> None:
                rows_of_head = weights[head]
                torch.mm(query[head, start:stop], key[head // repeat, :stop].T, out=rows_of_head)
                rows_of_head /= self._measure(call.layer, 0, head, rows_of_head, start)[:, None]
                out[0, head, start:stop] = torch.mm(rows_of_head, value[head // repeat, :stop])

            each(one, range(heads))
            rows, columns = places[start:stop], places[:stop]
            visible = (columns <= rows[:, None])[None, None]
            self._show(Block(call.layer, weights[None], visible, rows, columns, first), weights[None])
        return Attended(out, KERNEL, "Scores, rows and values of a block for all heads, and whoever watches.")

    def _show(self, block: Block, probabilities: torch.Tensor) -> None:
        for watch in self.watchers:
            watch(block, probabilities)
