"""One new token reads its groups, the window and the sinks: keys and values of a text, sorted by group.

A decode step takes as long as the bytes it reads. Here it reads the buffer of each of its groups and one small buffer
with the sinks and the window; of what two of them hold, the later leaves out what the earlier has. Appending copies
the new token only: buffers have room and grow by half.
"""

import torch
from torch import Tensor

from .members import bit_sets, bits_of
from .one_query import Read, attend
from .parts import part


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
        start = self.length if at is None else at
        count = new.shape[self.dim] if isinstance(new, Tensor) else 1
        if start + count > self._room.shape[self.dim]:
            self._grow(max(count, self.length // 2, 64))
        place = self._room.narrow(self.dim, start, count)
        if isinstance(new, Tensor):
            place.copy_(new)
        else:
            place.fill_(new)
        self.length = max(self.length, start + count)

    def _grow(self, more: int) -> None:
        shape = list(self._room.shape)
        shape[self.dim] = self.length + more
        room = self._room.new_empty(shape)
        room.narrow(self.dim, 0, self.length).copy_(self.rows)
        self._room = room


class _Buffer:
    """Some tokens of a text: keys and values [1, G, n, D], and their bit sets of groups [n]."""

    def __init__(self, keys: Tensor, values: Tensor, sets: Tensor, places: Tensor):
        spare = max(16, len(places) // 8) if len(places) else 0
        self.keys, self.values = (Growing(x.index_select(2, places), spare=spare) for x in (keys, values))
        self.sets = Growing(sets[places], 0, spare)

    def put(self, key: Tensor, value: Tensor, members: int, at: int) -> None:
        self.keys.put(key, at)
        self.values.put(value, at)
        self.sets.put(members, at)

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
        # the last group is of tokens without any
        sorts = torch.cat([members, ~members.any(-1, keepdim=True)], -1)
        self._groups = [_Buffer(keys, values, sets, in_group.nonzero()[:, 0]) for in_group in sorts.unbind(-1)]
        places = torch.arange(self.length, device=keys.device)
        # the window is a ring behind the sinks: the newest token takes the place of the one that leaves
        ring = places[max(n_sink, self.length - window) :]
        if self.length > n_sink + window:
            ring = ring[torch.argsort((ring - n_sink) % window)]
        self._near = _Buffer(keys, values, sets, torch.cat([places[:n_sink], ring]))
        self._sets = Growing(sets, 0, max(64, self.length // 8))
        self._newest = members[-1].tolist()  # groups of the last token

    @property
    def nbytes(self) -> int:
        """Bytes held, free room included."""
        return sum(buffer.nbytes for buffer in (*self._groups, self._near)) + self._sets.nbytes

    def put(self, key: Tensor, value: Tensor, members: Tensor) -> None:
        """Append one token: key, value [1, G, 1, D], members bool [K]."""
        with part("sort"):
            self._newest = members.tolist()
            bits = sum(bits_of(self._newest))
            for buffer in self._of_newest() or self._groups[-1:]:
                buffer.put(key, value, bits, buffer.keys.length)
            behind = self.length - self.n_sink
            place = self.length if behind < self.window else self.n_sink + behind % self.window
            self._near.put(key, value, bits, place)
            self._sets.put(bits, self.length)
            self.length += 1

    def attend(self, q: Tensor, scale: float, sink_logits: Tensor | None = None) -> Tensor:
        """What the last token reads, beside the learned sinks [H]: q [1, H, 1, D] -> [1, H, 1, D]."""
        buffers, reads, lower = [*self._of_newest(), self._near], [], 0
        self.read_bytes = self._row_bytes * sum(buffer.keys.length for buffer in buffers)
        with part("set_a"):
            for buffer, bit in zip(buffers, (*bits_of(self._newest), 0), strict=True):
                # without what the buffers before it hold
                reads.append(Read(buffer.keys.rows, buffer.values.rows, buffer.sets.rows, lower))
                lower |= bit
            return attend(q, reads, scale, sink_logits)[0]

    def in_order(self) -> tuple[Tensor, Tensor]:
        """All keys and values in the order of the text, [1, G, T, D]."""
        some, sets = self._near.keys.rows, self._sets.rows
        keys, values = (some.new_empty(*some.shape[:2], self.length, some.shape[3]) for _ in range(2))
        for group, buffer in enumerate(self._groups):
            inside = sets == 0 if buffer is self._groups[-1] else (sets >> group) & 1
            places = inside.nonzero()[:, 0]
            keys.index_copy_(2, places, buffer.keys.rows)
            values.index_copy_(2, places, buffer.values.rows)
        return keys, values

    def _of_newest(self) -> list[_Buffer]:
        return [buffer for buffer, member in zip(self._groups, self._newest, strict=False) if member]
