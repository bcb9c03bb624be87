"""What every token of a window reads most through one head, and which later tokens read it most."""

import numpy as np
import torch


class BothWays:
    """Collects the `count` strongest of both for a window of `length` tokens, from blocks of rows in any order.

    int32 [T, count] `keys` and `readers` (tokens of the window), float32 [T, count] `given` (what a token gives to each
    of its keys, itself among them) and `received` (what each later token gives to it), the strongest first; 0 where
    there are fewer.
    """

    def __init__(self, length: int, count: int) -> None:
        self.count = count
        self.given, self.keys = torch.zeros(length, count), torch.zeros(length, count, dtype=torch.int32)
        self._received, self._readers = torch.zeros(count, length), torch.zeros(count, length, dtype=torch.int32)

    def add(self, rows: torch.Tensor, start: int) -> None:
        """Rows [n, m] of attention, of the queries start..start + n to the first m keys; they are used up."""
        stop = start + len(rows)
        best = rows.topk(min(self.count, rows.shape[1]), -1)
        self.given[start:stop, : best.values.shape[1]] = best.values
        self.keys[start:stop, : best.values.shape[1]] = best.indices.int()
        # A token is no later reader of itself.
        rows[torch.arange(len(rows)), torch.arange(start, stop)] = 0.0
        width = rows.shape[1]
        later = rows.topk(min(self.count, len(rows)), 0)
        both = torch.cat([self._received[:, :width], later.values])
        who = torch.cat([self._readers[:, :width], (later.indices + start).int()])
        self._received[:, :width], index = both.topk(self.count, 0)
        self._readers[:, :width] = who.gather(0, index)

    @property
    def received(self) -> torch.Tensor:
        """float32 [T, count]."""
        return self._received.T

    @property
    def readers(self) -> torch.Tensor:
        """int32 [T, count]."""
        return self._readers.T

    def arrays(self) -> dict[str, np.ndarray]:
        """`keys given readers received`."""
        tensors = {"keys": self.keys, "given": self.given, "readers": self.readers, "received": self.received}
        return {name: tensor.contiguous().numpy() for name, tensor in tensors.items()}
