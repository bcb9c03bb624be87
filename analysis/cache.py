"""What a method remembers of every token beside the KV cache, so that a decode step knows the tokens before it."""

import torch


class TokenMemory:
    """One tensor [B, T, ...] per layer that grows with the KV cache.

    A method's `observe` gives one row per new token (group memberships, a running temperature); the memory keeps
    them in the order of the cache. It starts anew whenever a layer is fed from position 0.
    """

    def __init__(self):
        self._rows: dict[int, torch.Tensor] = {}

    def extend(self, layer: int, new: torch.Tensor, past: int) -> None:
        """Append the rows of the new tokens, [B, Tq, ...], after the first `past` ones."""
        if past == 0:
            self._rows[layer] = new
            return
        before = self._rows[layer][:, :past]
        assert before.shape[1] == past, f"layer {layer} remembers {before.shape[1]} tokens and the cache holds {past}"
        self._rows[layer] = torch.cat([before, new], dim=1)

    def keys(self, layer: int, length: int) -> torch.Tensor:
        """Rows of the `length` keys a layer sees: the last ones under a sliding cache, padded under a static one."""
        rows = self._rows[layer]
        if length <= rows.shape[1]:
            return rows[:, rows.shape[1] - length :]
        pad = rows.new_zeros(rows.shape[0], length - rows.shape[1], *rows.shape[2:])
        return torch.cat([rows, pad], dim=1)

    def __contains__(self, layer: int) -> bool:
        return layer in self._rows

    def clear(self) -> None:
        """Forget everything."""
        self._rows.clear()


def past_length(kwargs: dict, layer: int) -> int:
    """Tokens already in the KV cache of `layer`, from an attention module's keyword arguments (0 without)."""
    cache = kwargs.get("past_key_values", kwargs.get("layer_past"))
    return int(cache.get_seq_length(layer)) if cache is not None else 0
