"""What is left of a longer text after keys were dropped while it was written on: places, states, the last queries."""

from dataclasses import replace

import torch
from torch import Tensor

from ..kernels.decode import Growing, grown
from ..kernels.scoring import at_least_float32
from .calls import Prompt
from .visible import Visible

# The place of the first query that does not find a key which is still there.
NEVER = torch.iinfo(torch.int32).max


def places_held(left: Tensor) -> Tensor:
    """Places [G, n] of the keys that every head still holds, in order, of `left` int [G, T]; n is the most that a head
    holds, and -1 stands before the places of one that holds fewer."""
    held = left == NEVER
    size = int(held.sum(-1).amax())
    # those that are gone first
    order = held.byte().argsort(dim=-1, stable=True)[:, left.shape[1] - size :]
    return order.masked_fill(~held.gather(1, order), -1)


def gathered(places: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values [1, G, n, D] at `places` [G, n] of those [G, T, D] of a text; zeros where the place is -1."""
    inside, there = places.clamp(min=0)[..., None], (places >= 0)[..., None]
    rows = [x.gather(1, inside.expand(-1, -1, x.shape[-1])) * there for x in (keys, values)]
    return rows[0][None], rows[1][None]


class LastQueries:
    """The last queries of a layer with their rotary tables: as many as a score looks at, twice as many at the most."""

    def __init__(self, count: int) -> None:
        self.count = count
        # [B, H, n, D] and, where there are tables, cos and sin [B or 1, 1, n, D']
        self._rows: list[Growing] = []
        self._last: Prompt | None = None

    def put(self, prompt: Prompt) -> None:
        """Append the queries of one call."""
        self.trim(2 * self.count - 1)
        new = [prompt.query.detach(), *(x[:, None] for x in prompt.tables or ())]
        self._rows = grown(self._rows, new)
        sinks = None if prompt.visible is None else prompt.visible.sinks
        # nothing that keeps the states of a call alive
        none = prompt.first
        self._last = replace(prompt, query=none, key=none, value=none, visible=Visible(sinks=sinks))

    def trim(self, most: int | None = None) -> None:
        """Forget those that no later cut looks at, where there are more than `most`, by default as many as one does."""
        most = self.count if most is None else most
        if self._rows and (held := self._rows[0].length) > max(most, 0):
            start = held - self.count
            self._rows = [Growing(x.rows[:, :, start:].clone(), spare=self.count) for x in self._rows]

    @property
    def nbytes(self) -> int:
        """Of queries and tables, and of what was remembered of all tokens."""
        tokens = None if self._last is None else self._last.of_tokens
        return sum(rows.nbytes for rows in self._rows) + (0 if tokens is None else tokens.nbytes)

    def looking_at(self, text: int, bounds: tuple[int, int], keys: Tensor, values: Tensor, places: Tensor) -> Prompt:
        """One text between `bounds`, its first token and the tokens so far, as a method's score sees it: the keys that
        are left, [1, G, n, D] at `places` [1, G, n], and the last queries."""
        (first, now), last = bounds, self._last
        assert last is not None, "the prompt was put"
        stop = self._rows[0].length - (last.now - now)
        start = max(0, stop - min(self.count, now - first))
        query, *tables = (x.rows[min(text, len(x.rows) - 1), None, :, start:stop] for x in self._rows)
        return replace(
            last,
            query=at_least_float32(query),
            key=at_least_float32(keys),
            value=values,
            first=torch.zeros_like(last.first[:1]),
            tables=(tables[0][:, 0], tables[1][:, 0]) if tables else None,
            now=now - first,
            of_tokens=None if last.of_tokens is None else last.of_tokens[text : text + 1, first:now],
            places=places,
        )
