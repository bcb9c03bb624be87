"""Keys and values of a text of which every head holds others: what is left after eviction, and the tokens after it.

Heads that hold equally many keys share a buffer and one product; nothing that was dropped is held or read. On an
accelerator a call for each size would take longer to begin than to compute, so all heads share one under a mask, as
large as the head that holds most.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .decode import Growing
from .dense import dense
from .pool import accelerated, on_host
from .scoring import Scoring


@dataclass
class _Stack:
    """Heads [S] of texts times key-value heads, their keys and values [S, n, D], and which of the first of these they
    hold, bool [S, m], where they hold others than all."""

    heads: Tensor | slice
    keys: Growing
    values: Growing
    holds: Tensor | None = None


class Ragged:
    """The keys and values that are kept of a prompt, and all that come after it."""

    def __init__(self, keys: Tensor, values: Tensor, kept: Tensor, length: int | None = None, spare: int = 0):
        """Copies of keys and values [B, G, n, D] what `kept` bool [B, G, n] says; `length`: tokens of the text so far,
        n unless given; `spare`: room for so many more."""
        self._begin(kept, kept.shape[2] if length is None else length)
        flat, counts = kept.flatten(0, 1), kept.sum(-1).flatten()
        states = [x.flatten(0, 1) for x in (keys, values)]
        self._stacks: list[_Stack] = []
        if accelerated(keys):
            # All heads in one stack, those that hold fewer filled up with keys that are not read.
            fewest, most = on_host(torch.stack([counts.amin(), counts.amax()]), "fewest and most kept keys")
            # the kept ones first
            inside = flat.byte().argsort(dim=-1, descending=True, stable=True)[:, :most]
            holds = torch.arange(most, device=keys.device) < counts[:, None]
            rows = (x.gather(1, inside[..., None].expand(-1, -1, x.shape[-1])) for x in states)
            some, more = (Growing(x, spare=spare) for x in rows)
            self._stacks = [_Stack(slice(None), some, more, None if fewest == most else holds)]
            return
        # Stacks of heads that hold equally many.
        for count in counts.unique().tolist():
            heads = (counts == count).nonzero()[:, 0]
            inside = flat[heads].nonzero()[:, 1].view(len(heads), count)  # [S, n] places in the text
            some, more = (Growing(x[heads[:, None], inside], spare=spare) for x in states)
            self._stacks.append(_Stack(heads, some, more))

    def _begin(self, kept: Tensor, length: int) -> None:
        self._kept, self._begun, self.length = kept.sum(-1), length, length

    @property
    def counts(self) -> Tensor:
        """How many keys each head holds, float32 [B, G]."""
        return self._kept.float() + (self.length - self._begun)

    def take_back(self, count: int) -> None:
        """Forget the last `count` tokens, which were put after keys were dropped."""
        for stack in self._stacks:
            stack.keys.length -= count
            stack.values.length -= count
        self.length -= count

    def in_order(self) -> tuple[Tensor, Tensor]:
        """Copies of the keys and values [B, G, n, D] that are held, the oldest first; before those of a head that holds
        fewer than n stand zeros."""
        keys = self._in_order([stack.keys.rows for stack in self._stacks])
        return keys, self._in_order([stack.values.rows for stack in self._stacks])

    def _in_order(self, rows_of: list[Tensor]) -> Tensor:
        """Rows [S, n, D] of all stacks as [B, G, n, D]."""
        shape, most = self._kept.shape, max(rows.shape[1] for rows in rows_of)
        out = rows_of[0].new_zeros(shape.numel(), most, rows_of[0].shape[-1])
        for stack, rows in zip(self._stacks, rows_of, strict=True):
            if stack.holds is not None:
                held = F.pad(stack.holds, (0, rows.shape[1] - stack.holds.shape[1]), value=True)
                order = held.byte().argsort(dim=-1, stable=True)[..., None]
                rows = (rows * held[..., None]).gather(1, order.expand_as(rows))
            out[stack.heads, most - rows.shape[1] :] = rows
        return out.unflatten(0, shape)

    def put(self, keys: Tensor, values: Tensor) -> None:
        """Append keys and values [B, G, n, D] of new tokens."""
        keys, values = keys.flatten(0, 1), values.flatten(0, 1)
        for stack in self._stacks:
            stack.keys.put(keys[stack.heads])
            stack.values.put(values[stack.heads])
        self.length += keys.shape[1]

    def attend(
        self, query: Tensor, scale: float, sink_logits: Tensor | None = None, softcap: float | None = None
    ) -> Tensor:
        """What the last n tokens read, themselves causally, beside the learned sinks [H]: query [B, H, n, D] ->
        [B, H, n, D]. With a soft cap of scores in float32, not by torch's kernel."""
        grouped, sinks = self._by_head(query, sink_logits)
        out = torch.empty_like(grouped)
        for stack in self._stacks:
            keys, values = stack.keys.rows, stack.values.rows  # [S, held, D]
            mask, key_count = causal(query, keys.shape[1]), keys.shape[1]
            if stack.holds is not None:
                held = F.pad(stack.holds, (0, key_count - stack.holds.shape[1]), value=True)[:, None, None]
                mask = held if mask is None else held & mask
            of_stack = None if sinks is None else sinks[stack.heads]
            queries = grouped[stack.heads]
            if softcap is None:
                read = dense(queries, keys[:, None], values[:, None], mask, False, scale, sink_logits=of_stack)
            else:
                read = weighed(queries, [keys.float()], [values.float()], mask, Scoring(scale, softcap), of_stack)
            out[stack.heads] = read.to(out)
        return out.view(query.shape)

    def _by_head(self, query: Tensor, sink_logits: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Queries and sinks of key-value heads: [B G, H / G, n, D] and [B G, H / G]."""
        batch, groups = self._kept.shape
        grouped = query.unflatten(1, (groups, -1)).flatten(0, 1)
        return grouped, None if sink_logits is None else sink_logits.unflatten(0, (groups, -1)).repeat(batch, 1)

    @property
    def buffers(self) -> list[Growing]:
        """All that it stores."""
        return [buffer for stack in self._stacks for buffer in (stack.keys, stack.values)]

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values held, free room for new tokens included."""
        return sum(buffer.nbytes for buffer in self.buffers)

    @property
    def read_bytes(self) -> int:
        """Bytes of keys and values that a step reads."""
        return sum(buffer.rows.nbytes for buffer in self.buffers)


def causal(query: Tensor, count: int) -> Tensor | None:
    """bool [1, 1, n, count], True = read by n queries [..., n, D] that are the last of so many tokens; None: all."""
    length = query.shape[-2]
    if length == 1:
        return None
    return torch.ones(length, count, dtype=torch.bool, device=query.device).tril(count - length)[None, None]


def weighed(
    query: Tensor,
    keys: Iterable[Tensor],
    values: Iterable[Tensor],
    mask: Tensor | None,
    scoring: Scoring,
    sinks: Tensor | None,
) -> Tensor:
    """What queries [S, R, n, D] read of keys and values that come in blocks of rows [S, m, D], beside learned sinks
    [S, R], where `mask` says so: [S, R, n, D], all float32."""
    query = query.float()
    scores = scoring.of(torch.cat([query @ rows[:, None].mT for rows in keys], -1))
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.to(scores)[..., None, None].expand(*scores.shape[:-1], 1)], -1)
    weights, out, start = scores.softmax(-1), torch.zeros_like(query), 0
    for rows in values:
        out += weights[..., start : start + rows.shape[1]] @ rows[:, None]
        start += rows.shape[1]
    return out
