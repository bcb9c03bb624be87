"""Pages of keys: the smallest and largest value of each channel bound every product of a query with a key of the page.

Quest (Tang et al., 2024), section 3.3. The bounds are two vectors a page, so that a decode step looks at them in the
place of all keys and then gathers the few pages it reads.
"""

import torch
from torch import Tensor

from analysis.kernels.decode import Growing
from analysis.kernels.parts import part


def page_bounds(keys: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """(smallest, largest) of each channel in each whole page of `size` keys: [B, G, N size, D] -> both [B, G, N, D]."""
    paged = keys.unflatten(2, (-1, size))
    return paged.amin(3), paged.amax(3)


def upper_bounds(query: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """At least query . key for each key of a page: query [B, H, n, D], low and high [B, G, N, D] with G a divisor of H
    -> [B, H, n, N]. Each channel contributes the larger of its products with the page's two ends."""
    grouped = query.unflatten(1, (low.shape[1], -1))  # [B, G, H / G, n, D]
    found = grouped.clamp(min=0) @ high.mT[:, :, None] + grouped.clamp(max=0) @ low.mT[:, :, None]
    return found.flatten(1, 2)


class Pages:
    """The bounds of the complete pages before the newest token, kept from step to step: a page is looked at once."""

    def __init__(self, size: int):
        self.size, self.tokens = size, 0
        self._bounds: tuple[Growing, Growing] | None = None

    def follow(self, keys: Tensor) -> tuple[Tensor, Tensor] | None:
        """Bounds [B, G, N, D] of all complete pages before the page of the last key, of keys [B, G, T, D]; None for no
        page. Only pages that came since the last call are read; a text that did not grow is begun anew."""
        length = keys.shape[2]
        if length <= self.tokens:
            self._bounds = None
        self.tokens = length
        held, wanted = (0 if self._bounds is None else self._bounds[0].length), (length - 1) // self.size
        if wanted > held:
            new = page_bounds(keys[:, :, held * self.size : wanted * self.size], self.size)
            if self._bounds is None:
                self._bounds = tuple(Growing(bound) for bound in new)
            else:
                for buffer, bound in zip(self._bounds, new, strict=True):
                    buffer.put(bound)
        return None if self._bounds is None else tuple(buffer.rows for buffer in self._bounds)


def paged_attention(query: Tensor, key: Tensor, value: Tensor, chosen: Tensor, size: int, scale: float) -> Tensor:
    """Exact attention of one query per head over its chosen pages and the newest one: query [B, H, 1, D], key and value
    [B, G, T, D], chosen int64 [B, H, P] of complete pages -> [B, H, 1, D]. No other key or value is touched."""
    batch, heads = query.shape[:2]
    length, kv_heads = key.shape[2], key.shape[1]
    with part("sort"):
        newest = torch.arange((length - 1) // size * size, length, device=query.device)
        inside = torch.arange(size, device=query.device)
        places = (chosen[..., None] * size + inside).flatten(2)  # [B, H, P size]
        places = torch.cat([places, newest.expand(batch, heads, -1)], -1).flatten(0, 1)
        shared = torch.arange(batch * heads, device=query.device) // (heads // kv_heads)  # each head's keys
        keys, values = (x.flatten(0, 1)[shared[:, None], places] for x in (key, value))  # [B H, P size + rest, D]
    with part("set_a"):
        scores = (query.flatten(0, 1) @ keys.mT).float() * scale  # [B H, 1, P size + rest]
        weights = torch.softmax(scores, -1).to(values.dtype)
        return (weights @ values).view(batch, heads, 1, -1)
