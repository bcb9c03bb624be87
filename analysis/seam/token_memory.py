"""What a method remembers of every token beside keys and values."""

import torch

from ..errors import AnalysisError
from ..kernels.decode import Growing


class TokenMemory:
    """One tensor [B, T, ...] per layer that grows with the KV cache.

    A method's `token_features` gives one row per new token (group memberships, a running temperature); the memory keeps
    them in the order of the cache. It starts anew whenever a layer is fed from position 0.
    """

    def __init__(self) -> None:
        self._rows: dict[int, Growing] = {}

    def extend(self, layer: int, new: torch.Tensor, past: int) -> None:
        """Append the rows of the new tokens, [B, Tq, ...], after the first `past` ones."""
        if past == 0:
            self._rows[layer] = Growing(new, dim=1)
            return
        remembered = self._rows[layer].length if layer in self._rows else 0
        if remembered < past:
            raise AnalysisError(
                f"The KV cache holds {past:,} tokens and the method applied now saw {remembered:,} of them: "
                "begin with an empty cache."
            )
        self._rows[layer].length = past
        self._rows[layer].put(new)

    def keys(self, layer: int, length: int) -> torch.Tensor:
        """Rows of the `length` keys a layer sees: the last ones under a sliding cache, padded under a static one."""
        rows = self._rows[layer].rows
        if length <= rows.shape[1]:
            return rows[:, rows.shape[1] - length :]
        pad = rows.new_zeros(rows.shape[0], length - rows.shape[1], *rows.shape[2:])
        return torch.cat([rows, pad], dim=1)

    def __contains__(self, layer: int) -> bool:
        return layer in self._rows
