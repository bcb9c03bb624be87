"""One new token reads its groups, the window and the sinks: keys and values of a text, sorted by group.

A decode step takes as long as the bytes it reads. Here it reads the buffer of each of its groups and one small buffer
with the sinks and the window; of what two of them hold, the later leaves out what the earlier has. Appending copies
the new token only: buffers have room and grow by half.
"""

import torch
from torch import Tensor

from . import step
from .members import bit_sets
from .merge import merge
from .parts import part
from .window import flash

FLASH_TYPES = (torch.float32, torch.bfloat16, torch.float16)


class Growing:
    """Rows along one dimension of a tensor, in a buffer with room for more."""

    def __init__(self, rows: Tensor, dim: int = -2, spare: int = 0):
        """Takes `rows` as they are, or copies them before `spare` free ones."""
        self.length, self.dim, self._room = rows.shape[dim], dim, rows
        if spare:
            self._grow(spare)

    @property
    def rows(self) -> Tensor:
        """The rows so far, a view."""
        return self._room.narrow(self.dim, 0, self.length)

    @property
    def nbytes(self) -> int:
        """Bytes of the buffer, its free room included."""
        return self._room.nbytes

    def put(self, new: Tensor | int, at: int | None = None) -> None:
        """Write rows, or one number, from row `at` on; behind the last one unless given."""
        start, number = self.length if at is None else at, isinstance(new, int)
        count = 1 if number else new.shape[self.dim]
        if start + count > self._room.shape[self.dim]:
            self._grow(max(count, self.length // 2, 64))
        place = self._room.narrow(self.dim, start, count)
        place.fill_(new) if number else place.copy_(new)
        self.length = max(self.length, start + count)

    def _grow(self, more: int) -> None:
        shape = list(self._room.shape)
        shape[self.dim] = self.length + more
        room = self._room.new_empty(shape)
        room.narrow(self.dim, 0, self.length).copy_(self.rows)
        self._room = room


class _Held:
    """Some tokens of a text: keys and values [1, G, n, D], and their bit sets of groups [n]."""

    def __init__(self, keys: Tensor, values: Tensor, sets: Tensor, places: Tensor):
        spare = max(16, len(places) // 8) if len(places) else 0
        self.keys, self.values = (Growing(x.index_select(2, places), spare=spare) for x in (keys, values))
        self.sets = Growing(sets[places], 0, spare)

    def put(self, key: Tensor, value: Tensor, members: int, at: int) -> None:
        for buffer, new in ((self.keys, key), (self.values, value), (self.sets, members)):
            buffer.put(new, at)

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes + self.sets.nbytes


class GroupMajor:
    """Keys and values of one text in one layer; a token is stored with each of its groups.

    `length` tokens so far; `read_bytes` of keys and values that the last step read, what it read twice counted twice.
    """

    def __init__(self, keys: Tensor, values: Tensor, members: Tensor, window: int, n_sink: int = 0):
        """Sort a text: keys, values [1, G, T, D], members bool [T, K]."""
        self.window, self.n_sink, self.length, self.read_bytes = window, n_sink, len(members), 0
        self._row_bytes = 2 * keys.shape[1] * keys.shape[3] * keys.itemsize  # of a token's keys and values
        sets = bit_sets(members)  # [T]
        sorts = torch.cat([members, ~members.any(-1, keepdim=True)], -1)  # the last group is of tokens without any
        self._groups = [_Held(keys, values, sets, in_group.nonzero()[:, 0]) for in_group in sorts.unbind(-1)]
        places = torch.arange(self.length, device=keys.device)
        ring = places[max(n_sink, self.length - window) :]
        ring = ring[torch.argsort((ring - n_sink) % window)] if self.length > n_sink + window else ring
        self._near = _Held(keys, values, sets, torch.cat([places[:n_sink], ring]))
        self._sets = Growing(sets, 0, max(64, self.length // 8))
        self._mine = members[-1].tolist()

    @property
    def nbytes(self) -> int:
        """Bytes held, free room included."""
        return sum(buffer.nbytes for buffer in (*self._groups, self._near, self._sets))

    def put(self, key: Tensor, value: Tensor, members: Tensor) -> None:
        """Append one token: key, value [1, G, 1, D], members bool [K]."""
        with part("sort"):
            self._mine = members.tolist()
            bits = sum(_bits(self._mine))
            for buffer in self._of_mine() or self._groups[-1:]:
                buffer.put(key, value, bits, buffer.keys.length)
            behind = self.length - self.n_sink
            place = self.length if behind < self.window else self.n_sink + behind % self.window
            self._near.put(key, value, bits, place)
            self._sets.put(bits, self.length)
            self.length += 1

    def attend(self, q: Tensor, scale: float) -> Tensor:
        """What the last token reads: q [1, H, 1, D] -> [1, H, 1, D]."""
        buffers, near, parts_out, lower = self._of_mine(), self._near, [], 0
        self.read_bytes = self._row_bytes * sum(buffer.keys.length for buffer in (*buffers, near))
        if step.runs(q):
            with part("set_a"):
                return step.attend(q, self._parts(buffers), scale)[0]
        with part("set_a"):
            for buffer, bit in zip(buffers, _bits(self._mine), strict=True):
                skip = (buffer.sets.rows & lower) != 0 if lower else None  # read with a lower group
                parts_out.append(one_query(q, buffer.keys.rows, buffer.values.rows, skip, scale))
                lower |= bit
        with part("set_b"):
            parts_out.append(one_query(q, near.keys.rows, near.values.rows, (near.sets.rows & lower) != 0, scale))
        with part("merge"):
            (out, lse), *further = filter(None, parts_out)
            for part_out, more_lse in further:
                out, lse = merge(out, lse, part_out, more_lse)
            return out.to(q.dtype)

    def _parts(self, buffers: list[_Held]) -> list[step.Read]:
        """What the last token reads, each without what those before it held."""
        parts, lower = [], 0
        for buffer, bit in zip((*buffers, self._near), (*_bits(self._mine), 0), strict=True):
            parts.append(step.Read(buffer.keys.rows, buffer.values.rows, buffer.sets.rows, lower))
            lower |= bit
        return parts

    def in_order(self) -> tuple[Tensor, Tensor]:
        """All keys and values in the order of the text, [1, G, T, D]."""
        some, sets = self._near.keys.rows, self._sets.rows
        keys, values = (some.new_empty(*some.shape[:2], self.length, some.shape[3]) for _ in range(2))
        for group, buffer in enumerate(self._groups):
            last = group == len(self._groups) - 1
            places = (sets == 0 if last else (sets >> group) & 1).nonzero()[:, 0]
            keys.index_copy_(2, places, buffer.keys.rows)
            values.index_copy_(2, places, buffer.values.rows)
        return keys, values

    def _of_mine(self) -> list[_Held]:
        """The groups of the last token."""
        return [buffer for buffer, member in zip(self._groups, self._mine, strict=False) if member]


def _bits(members: list[bool]) -> list[int]:
    """The bit of each group of a token, as in `bit_sets`."""
    return [(1 << group) - (1 << 64) * (group == 63) for group, member in enumerate(members) if member]


def one_query(q: Tensor, k: Tensor, v: Tensor, skip: Tensor | None, scale: float) -> tuple[Tensor, Tensor] | None:
    """Attention of one query: q [1, H, 1, D], k and v [1, G, n, D], skip bool [n] (True = not read) or None.

    Returns (out [1, H, 1, D], lse [1, H, 1] in float32 or better), or None when nothing is read.
    """
    if skip is not None and bool(skip.all()):
        return None
    heads, kv_heads = q.shape[1], k.shape[1]
    if q.device.type == "cpu" and q.dtype in FLASH_TYPES:
        bias = None
        if skip is not None:
            bias = torch.zeros(len(skip), dtype=q.dtype).masked_fill_(skip, float("-inf")).expand(1, heads, 1, -1)
        return flash(q, k, v, 0.0, False, attn_mask=bias, scale=scale)
    exact = torch.promote_types(q.dtype, torch.float32)
    scores = (q.reshape(1, kv_heads, heads // kv_heads, -1) @ k.transpose(2, 3)).to(exact) * scale  # [1, G, r, n]
    if skip is not None:
        scores = scores.masked_fill(skip, float("-inf"))
    out = torch.softmax(scores, -1).to(v.dtype) @ v
    return out.reshape(q.shape), torch.logsumexp(scores, -1).reshape(1, heads, 1)
