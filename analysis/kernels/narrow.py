"""Keys and values of a text in few bits: what is left of a prompt is packed when it has been read, what comes after it
a block of tokens at a time. A step makes numbers of the bytes again, some rows at a time.

Heads that hold equally many keys share their buffers, as in `ragged`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .bits import Directions, Floats, Format, Steps
from .decode import Growing, grown
from .native.one_query import Packed, attend_packed
from .pool import on_host
from .ragged import Ragged, causal, weighed
from .scoring import Scoring

# New tokens that are packed at once.
BLOCK = 128
# Rows that are numbers at the same time.
ROWS = 2048
# Of Steps: one group for a row of any size.
WHOLE = 1 << 20
# Rows that may share a step: whole groups of each fill ROWS.
GROUPS = (8, 16, 32, 64, 128)
# Values that stay in full beside steps of few bits, and rows that share a step: KIVI, arXiv 2402.02750.
RECENT, GROUP = 128, 64


@dataclass(frozen=True)
class Storage:
    """How a layer stores keys and values. Keys are packed `group` rows at a time; the last `recent` values stay as they
    are."""

    keys: Format
    values: Format
    group: int = 1
    recent: int = 0

    def packed(self, count: int) -> tuple[int, int]:
        """How many of the first of `count` keys and values are packed."""
        return count // self.group * self.group, max(0, count - self.recent)

    def since(self, places: Tensor, count: Tensor | int) -> tuple[Tensor, Tensor]:
        """Of rows at `places` of a head that kept `count` of a prompt: how many tokens come after the prompt before the
        key, and the value, is read as it is packed."""
        needs = (places // self.group + 1) * self.group, places + 1 + self.recent
        key, value = (((need - count).clamp(min=0) + BLOCK - 1) // BLOCK * BLOCK for need in needs)
        return key, value


def steps(bits: int, group: int = GROUP, recent: int = RECENT) -> Storage:
    """Keys by channel over `group` tokens, values by token over `group` channels."""
    return Storage(Steps(bits, group, by_column=True), Steps(bits, group), group, recent)


def turbo(keys: Format, bits: int) -> Storage:
    """Values by token, one group each."""
    return Storage(keys, Steps(bits, WHOLE))


# The presets of vLLM's turboquant, and 2 bits.
TURBO = {
    "k8v4": turbo(Floats(), 4),
    "4bit_nc": turbo(Directions(4), 4),
    "k3v4_nc": turbo(Directions(3), 4),
    "3bit_nc": turbo(Directions(3), 3),
    "2bit_nc": turbo(Directions(2), 2),
}
STORAGES = {
    "int8": steps(8),
    "int4": steps(4),
    "int2": steps(2),
    "fp8": Storage(Floats(), Floats()),
    **TURBO,
}


class _Side:
    """The keys, or the values, of some heads [S, n, D]: the first rows packed, the others behind them in full."""

    def __init__(self, rows: Tensor, places: Tensor, stored_as: Format, packed: int):
        """Of rows [S, T, D] those at `places` [S, n], the first `packed` of them in few bits."""
        index = places[..., None].expand(-1, -1, rows.shape[-1])
        self.format, self.size, self.packed = stored_as, rows.shape[-1], packed
        pieces = index[:, :packed].split(ROWS, 1) if packed else ()
        coded = [stored_as.encode(rows.gather(1, piece)) for piece in pieces]
        self.parts = [Growing(torch.cat(parts, 1)) for parts in zip(*coded, strict=True)]
        self.tail = Growing(rows.gather(1, index[:, packed:]))

    def advance(self, packed: int) -> None:
        """Pack rows until so many of the first are."""
        if (count := packed - self.packed) <= 0:
            return
        rows = self.tail.rows
        self.parts = grown(self.parts, self.format.encode(rows[:, :count]))
        self.tail, self.packed = Growing(rows[:, count:].clone()), packed

    def blocks(self) -> Iterator[Tensor]:
        """All rows in order as float32 [S, n, D], some at a time."""
        for start in range(0, self.packed, ROWS):
            end = min(start + ROWS, self.packed)
            # of some parts a row stands for a group of rows
            sizes = [self.packed // part.length for part in self.parts]
            parts = [part.rows[:, start // size : end // size] for part, size in zip(self.parts, sizes, strict=True)]
            yield self.format.decode(parts, self.size)
        yield self.tail.rows.float()

    def as_packed(self) -> Packed:
        """As one query reads it."""
        return Packed(self.format, [part.rows for part in self.parts], self.tail.rows)


@dataclass(frozen=True)
class _PackedHeads:
    """Heads of texts times key-value heads that `kept` as many keys of the prompt; None: all."""

    heads: list[int] | None
    kept: int
    keys: _Side
    values: _Side

    def attend(self, query: Tensor, scoring: Scoring, sinks: Tensor | None) -> Tensor:
        """What the last n tokens read, themselves causally: query [S, H / G, n, D] -> the same."""
        if query.shape[2] == 1 and scoring.softcap is None:
            read = attend_packed(query, self.keys.as_packed(), self.values.as_packed(), scoring.factor, sinks)
            if read is not None:
                return read
        blocks = list(self.keys.blocks())
        mask = causal(query, sum(rows.shape[1] for rows in blocks))
        return weighed(query, blocks, self.values.blocks(), mask, scoring, sinks)


def _of(rows: Tensor, heads: list[int] | None) -> Tensor:
    """The rows of some heads, or all. Not by an index, which would be copied to an accelerator."""
    return rows if heads is None else torch.stack([rows[head] for head in heads])


class Narrow(Ragged):
    """The keys and values that are kept of a prompt, and all that come after it, in few bits."""

    def __init__(self, keys: Tensor, values: Tensor, kept: Tensor, storage: Storage):
        """Copies of keys and values [B, G, T, D] what `kept` bool [B, G, T] says."""
        self._begin(kept, kept.shape[2])
        self.storage = storage
        self._coming: tuple[Tensor, Tensor] | None = None
        self._narrow: list[_PackedHeads] = []
        counts = on_host(kept.sum(-1).flatten(), "kept keys of heads")
        # what is kept comes first, in its order
        order = kept.flatten(0, 1).byte().argsort(dim=-1, descending=True, stable=True)
        for count in sorted(set(counts)):
            heads = [head for head, kept_keys in enumerate(counts) if kept_keys == count]
            some = None if len(heads) == len(counts) else heads
            places = _of(order, some)[:, :count]
            packed = storage.packed(count)
            of_keys = _Side(_of(keys.flatten(0, 1), some), places, storage.keys, packed[0])
            of_values = _Side(_of(values.flatten(0, 1), some), places, storage.values, packed[1])
            self._narrow.append(_PackedHeads(some, count, of_keys, of_values))

    def put(self, keys: Tensor, values: Tensor) -> None:
        """New tokens come, keys and values [B, G, n, D]; `attend` takes them in."""
        self._coming = keys.flatten(0, 1), values.flatten(0, 1)
        self.length += keys.shape[2]

    def attend(
        self, query: Tensor, scale: float, sink_logits: Tensor | None = None, softcap: float | None = None
    ) -> Tensor:
        """What the tokens that came read, as in `Ragged`."""
        assert self._coming is not None, "put gave the tokens"
        (keys, values), self._coming = self._coming, None
        count, scoring = query.shape[2], Scoring(scale, softcap)
        grouped, sinks = self._by_head(query, sink_logits)
        out = torch.empty_like(grouped)
        # tokens between which nothing is packed read together
        after, start = self.length - count - self._begun, 0
        while start < count:
            end = min(count, start + BLOCK - (after + start) % BLOCK)
            for stack in self._narrow:
                stack.keys.tail.put(_of(keys, stack.heads)[:, start:end])
                stack.values.tail.put(_of(values, stack.heads)[:, start:end])
                of_stack = None if sinks is None else _of(sinks, stack.heads)
                read = stack.attend(_of(grouped, stack.heads)[:, :, start:end], scoring, of_stack).to(out)
                for place, head in enumerate(stack.heads or ()):
                    out[head, :, start:end] = read[place]
                if stack.heads is None:
                    out[:, :, start:end] = read
                if (after + end) % BLOCK == 0:
                    packed = self.storage.packed(stack.kept + after + end)
                    stack.keys.advance(packed[0])
                    stack.values.advance(packed[1])
            start = end
        return out.view(query.shape)

    @property
    def buffers(self) -> list[Growing]:
        """All that it stores."""
        sides = [side for stack in self._narrow for side in (stack.keys, stack.values)]
        return [buffer for side in sides for buffer in (*side.parts, side.tail)]
