"""One new token reads its groups, the window and the sinks on an accelerator, which the host asks nothing.

Keys and values stay in the order of the text. Beside them stands a table of the places of each group's tokens, as wide
as the largest group can be by now: what a step gathers has a size that the host knows, and what does not belong to the
token is masked.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from .decode import Growing
from .dense import dense
from .members import bit_sets
from .parts import part

# The table is so many columns wide, or a multiple of it: sizes of calls change as seldom.
COLUMNS = 64


class GroupTable:
    """Keys and values of one text in one layer, as `decode.GroupMajor` has them.

    `length` tokens so far; `read_bytes` of keys and values that the last step gathered, what is masked counted too.
    """

    def __init__(self, keys: Tensor, values: Tensor, members: Tensor, window: int, n_sink: int, largest: int, top: int):
        """A text: keys, values [1, G, T, D], members bool [T, K]; no group is larger than `largest`, and no token is in
        more than `top` groups."""
        self.window, self.n_sink, self.read_bytes, self.top = window, n_sink, 0, top
        self._keys, self._values = Growing(keys), Growing(values)
        self._sets = Growing(bit_sets(members), 0, COLUMNS)
        # places of each group's tokens, of which the first `counts` [K] are used
        order = members.T.byte().argsort(dim=-1, descending=True, stable=True)
        self._largest, self._counts, self._table = largest, members.sum(0), order[:, :largest]  # [K, columns]
        self._widen()
        self._newest = members[-1]

    length = property(lambda self: self._keys.length)

    @property
    def nbytes(self) -> int:
        """Bytes held, free room included."""
        return sum(part.nbytes for part in (self._keys, self._values, self._sets, self._table))

    def put(self, key: Tensor, value: Tensor, members: Tensor) -> None:
        """Append one token: key, value [1, G, 1, D], members bool [K]."""
        with part("sort"):
            # the group that the token joins may be the largest one
            self._largest += 1
            self._widen()
            column = self._counts[:, None]
            before = self._table.gather(1, column)
            self._table.scatter_(1, column, torch.where(members[:, None], self.length, before))
            self._counts = self._counts + members
            self._sets.put(bit_sets(members[None]))
            self._keys.put(key)
            self._values.put(value)
            self._newest = members

    def attend(self, q: Tensor, scale: float, sink_logits: Tensor | None = None) -> Tensor:
        """What the last token reads, beside the learned sinks [H]: q [1, H, 1, D] -> [1, H, 1, D]."""
        with part("sort"):
            chosen, read = self._places()
            index = chosen[None, None, :, None].expand(1, self._keys.rows.shape[1], -1, q.shape[-1])
            keys, values = (buffer.rows.gather(2, index) for buffer in (self._keys, self._values))
        self.read_bytes = keys.nbytes + values.nbytes
        with part("set_a"):
            return dense(q, keys, values, read[None, None, None], False, scale, sink_logits=sink_logits)

    def in_order(self) -> tuple[Tensor, Tensor]:
        """All keys and values in the order of the text, [1, G, T, D]."""
        return self._keys.rows, self._values.rows

    def _places(self) -> tuple[Tensor, Tensor]:
        """The places [m] that a step gathers, and which of them it reads, bool [m]: each token once."""
        device, sinks = self._counts.device, min(self.n_sink, self.length)
        near = max(sinks, self.length - self.window)
        groups = self._newest.byte().topk(self.top).indices  # [top], those of the token among them
        table = self._table[groups]  # [top, columns]
        columns = torch.arange(table.shape[1], device=device)
        belongs = (columns < self._counts[groups, None]) & self._newest[groups, None]
        # what an earlier of these groups has already, and what the window and the sinks have
        bits = torch.where(self._newest[groups], torch.ones_like(groups) << groups, 0)
        earlier = bits.cumsum(0) - bits
        again = (self._sets.rows[table].long() & earlier[:, None]) != 0
        belongs = belongs & ~again & (table >= self.n_sink) & (table < near)
        first, newest = torch.arange(sinks, device=device), torch.arange(near, self.length, device=device)
        always = torch.ones(len(first) + len(newest), dtype=torch.bool, device=device)
        return torch.cat([table.flatten(), first, newest]), torch.cat([belongs.flatten(), always])

    def _widen(self) -> None:
        """Make room for the largest group and one token more."""
        more = -(-(self._largest + 1) // COLUMNS) * COLUMNS - self._table.shape[1]
        if more > 0:
            self._table = F.pad(self._table, (0, more))
