"""One new token reads its groups, the window and the sinks: keys and values of a text, sorted by group.

A decode step takes as long as the bytes it reads. Here it reads the buffer of each of its groups and one small buffer
with the sinks and the window; of what two of them hold, the later leaves out what the earlier has. Appending copies
the new token only: buffers have room and grow by half.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from .dense import dense
from .members import bit_sets, bits_of
from .native.one_query import Read, attend
from .parts import part

# The table of groups is so many columns wide, or a multiple of it: sizes of calls change as seldom.
COLUMNS = 64


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


def grown(buffers: list[Growing], new: Sequence[Tensor]) -> list[Growing]:
    """The buffers with rows more each, or such with these rows where there are none yet."""
    for buffer, rows in zip(buffers, new, strict=False):
        buffer.put(rows)
    return buffers or [Growing(rows) for rows in new]


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


class GroupTable:
    """Keys and values of texts in one layer, as `GroupMajor` has them of one, where the host asks an accelerator
    nothing and one call reads all texts and groups.

    They stay in the order of the text. Beside them stands a table of the places of each group's tokens, as wide as the
    largest group can be by now: what a step gathers has a size that the host knows, and what does not belong to the
    token is masked.

    `length` tokens so far; `read_bytes` of keys and values that the last step gathered, what is masked counted too.
    """

    def __init__(self, keys: Tensor, values: Tensor, members: Tensor, window: int, n_sink: int, largest: int, top: int):
        """Texts: keys, values [B, G, T, D], members bool [B, T, K]; no group is larger than `largest`, and no token is
        in more than `top` groups."""
        self.window, self.n_sink, self.read_bytes, self.top = window, n_sink, 0, top
        self._keys, self._values = Growing(keys), Growing(values)
        self._sets = Growing(bit_sets(members), 1, COLUMNS)
        # places of each group's tokens, of which the first `counts` [B, K] are used
        order = members.transpose(1, 2).byte().argsort(dim=-1, descending=True, stable=True)
        self._largest, self._counts, self._table = largest, members.sum(1), order[..., :largest]  # [B, K, columns]
        self._widen()
        self._newest = members[:, -1]

    length = property(lambda self: self._keys.length)

    @property
    def nbytes(self) -> int:
        """Bytes held, free room included."""
        return sum(part.nbytes for part in (self._keys, self._values, self._sets, self._table))

    def put(self, key: Tensor, value: Tensor, members: Tensor) -> None:
        """Append a token to each text: key, value [B, G, 1, D], members bool [B, K]."""
        with part("sort"):
            # the group that the token joins may be the largest one
            self._largest += 1
            self._widen()
            column = self._counts[..., None]
            before = self._table.gather(2, column)
            self._table.scatter_(2, column, torch.where(members[..., None], self.length, before))
            self._counts = self._counts + members
            self._sets.put(bit_sets(members[:, None]))
            self._keys.put(key)
            self._values.put(value)
            self._newest = members

    def attend(self, q: Tensor, scale: float, sink_logits: Tensor | None = None) -> Tensor:
        """What the last tokens read, beside the learned sinks [H] or [B, H]: q [B, H, 1, D] -> [B, H, 1, D]."""
        with part("sort"):
            chosen, read = self._places()
            index = chosen[:, None, :, None].expand(-1, self._keys.rows.shape[1], -1, q.shape[-1])
            keys, values = (buffer.rows.gather(2, index) for buffer in (self._keys, self._values))
        self.read_bytes = keys.nbytes + values.nbytes
        with part("set_a"):
            return dense(q, keys, values, read[:, None, None], False, scale, sink_logits=sink_logits)

    def in_order(self) -> tuple[Tensor, Tensor]:
        """All keys and values in the order of the texts, [B, G, T, D]."""
        return self._keys.rows, self._values.rows

    def _places(self) -> tuple[Tensor, Tensor]:
        """The places [B, m] that a step gathers, and which of them it reads, bool [B, m]: each token once."""
        device, sinks, batch = self._counts.device, min(self.n_sink, self.length), len(self._counts)
        near = max(sinks, self.length - self.window)
        groups = self._newest.byte().topk(self.top).indices  # [B, top], those of the token among them
        table = self._table.gather(1, groups[..., None].expand(-1, -1, self._table.shape[2]))  # [B, top, columns]
        columns, belongs_to = torch.arange(table.shape[2], device=device), self._newest.gather(1, groups)
        belongs = (columns < self._counts.gather(1, groups)[..., None]) & belongs_to[..., None]
        # what an earlier of these groups has already, and what the window and the sinks have
        bits = torch.where(belongs_to, torch.ones_like(groups) << groups, 0)
        earlier = bits.cumsum(1) - bits
        sets = self._sets.rows.gather(1, table.flatten(1)).view_as(table).long()
        belongs = belongs & ((sets & earlier[..., None]) == 0) & (table >= self.n_sink) & (table < near)
        first, newest = torch.arange(sinks, device=device), torch.arange(near, self.length, device=device)
        always = torch.cat([first, newest]).expand(batch, -1)
        read = torch.cat([belongs.flatten(1), torch.ones_like(always, dtype=torch.bool)], 1)
        return torch.cat([table.flatten(1), always], 1), read

    def _widen(self) -> None:
        """Make room for the largest group and one token more."""
        more = -(-(self._largest + 1) // COLUMNS) * COLUMNS - self._table.shape[-1]
        if more > 0:
            self._table = F.pad(self._table, (0, more))
