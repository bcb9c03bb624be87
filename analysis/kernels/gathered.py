"""One query of each head over the few keys that it gathers, of buckets or of pages: the others are not touched.

Pages of keys (Quest, Tang et al., 2024, section 3.3): the smallest and largest value of each channel bound every
product of a query with a key of the page. A decode step looks at these two vectors in the place of all keys.
"""

import torch
from torch import Tensor

from .decode import Growing, grown
from .dense import dense
from .native.one_query import Read, attend, compiled
from .parts import part
from .pool import accelerated
from .scoring import softmax


def page_bounds(keys: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """(smallest, largest) of each channel in each whole page of `size` keys: [B, G, N size, D] -> both [B, G, N, D]."""
    paged = keys.unflatten(2, (-1, size))
    return paged.amin(3), paged.amax(3)


def upper_bounds(query: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """At least query . key for each key of a page: query [B, H, n, D], low and high [B, G, N, D] with G a divisor of H
    -> [B, H, n, N]. Each channel contributes the larger of its products with the page's two ends."""
    grouped = query.unflatten(1, (low.shape[1], -1))  # [B, G, H / G, n, D]
    bounds = grouped.clamp(min=0) @ high.mT[:, :, None] + grouped.clamp(max=0) @ low.mT[:, :, None]
    return bounds.flatten(1, 2)


class Pages:
    """The bounds of the complete pages before the newest token, kept from step to step: a page is looked at once."""

    def __init__(self, size: int):
        self.size, self.tokens = size, 0
        self._bounds: list[Growing] = []  # smallest, largest

    def follow(self, keys: Tensor) -> tuple[Tensor, Tensor] | None:
        """Bounds [B, G, N, D] of all complete pages before the page of the last key, of keys [B, G, T, D]; None for no
        page. Only pages that came since the last call are read; a text that did not grow is begun anew."""
        length = keys.shape[2]
        if length <= self.tokens:
            self._bounds = []
        self.tokens = length
        pages, wanted = (self._bounds[0].length if self._bounds else 0), (length - 1) // self.size
        if wanted > pages:
            new = page_bounds(keys[:, :, pages * self.size : wanted * self.size], self.size)
            self._bounds = grown(self._bounds, new)
        return (self._bounds[0].rows, self._bounds[1].rows) if self._bounds else None


def paged_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    chosen: Tensor,
    size: int,
    scale: float,
    sink_logits: Tensor | None = None,
) -> Tensor:
    """Exact attention of one query per head over its chosen pages and the newest one: query [B, H, 1, D], key and value
    [B, G, T, D], chosen int64 [B, H, P] of complete pages -> [B, H, 1, D]. No other key or value is touched.
    `sink_logits` [H]: learned sinks, one more term of every sum."""
    length, count = key.shape[2], query.shape[:2].numel()
    newest = torch.arange((length - 1) // size * size, length, device=query.device)
    inside = torch.arange(size, device=query.device)
    places = (chosen[..., None] * size + inside).view(count, -1)  # [B H, P size]
    return _over(query, key, value, torch.cat([places, newest.expand(count, -1)], -1), scale, sink_logits)


def visits_keys(labels: Tensor, visits: Tensor) -> Tensor:
    """Which keys lie in a visited bucket: labels int64 [B, P, T], visits bool [B, H, n, C], P | H -> [B, H, n, T]."""
    batch, parts, length = labels.shape
    heads, count = visits.shape[1:3]
    grouped = visits.reshape(batch, parts, heads // parts * count, -1)
    return grouped.gather(-1, labels[:, :, None].expand(-1, -1, grouped.shape[2], -1)).view(batch, heads, count, length)


def gathered_attention(
    query: Tensor, key: Tensor, value: Tensor, read: Tensor, scale: float, sink_logits: Tensor | None = None
) -> Tensor:
    """Exact attention of one query per head over the keys with `read` bool [B, H, T]: query [B, H, 1, D], key and value
    [B, G, T, D] -> [B, H, 1, D]. Each head reads at least one key. `sink_logits` [H]: learned sinks, one more term of
    every sum. On an accelerator the other keys are masked."""
    if compiled(query):
        with part("sort"):
            skip = read.logical_not().view(torch.uint8)
        with part("set_a"):
            batches = zip(query.split(1), key.split(1), value.split(1), skip, strict=True)
            return torch.cat([attend(q, [Read(k, v, s, 1)], scale, sink_logits)[0] for q, k, v, s in batches])
    # to gather, the host would have to know how many keys there are
    if accelerated(query):
        with part("set_a"):
            return dense(query, key, value, read[:, :, None], False, scale, sink_logits=sink_logits)
    read = read.flatten(0, 1)
    with part("sort"):
        count = read.sum(-1)  # [B H]
        # Place of each read key among those of its head.
        slot = (read.cumsum(-1) - 1)[read]
        row, column = read.nonzero(as_tuple=True)
        places = torch.zeros(len(read), int(count.max()), dtype=torch.long, device=read.device)
        places[row, slot] = column
    return _over(query, key, value, places, scale, sink_logits, count)


def _over(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    places: Tensor,
    scale: float,
    sink_logits: Tensor | None,
    count: Tensor | None = None,
) -> Tensor:
    """Over the keys at `places` int64 [B H, m], the first `count` [B H] of them where it is given."""
    with part("sort"):
        # each head's keys
        shared = torch.arange(len(places), device=places.device) // (query.shape[1] // key.shape[1])
        keys, values = (x.flatten(0, 1)[shared[:, None], places] for x in (key, value))  # [B H, m, D]
    with part("set_a"):
        scores = (query.flatten(0, 1) @ keys.mT).float() * scale  # [B H, 1, m]
        if count is not None:
            empty = torch.arange(scores.shape[-1], device=scores.device) >= count.view(-1, 1, 1)
            scores = scores.masked_fill(empty, float("-inf"))
        shares = softmax(scores.unflatten(0, query.shape[:2]), sink_logits).flatten(0, 1)
        return (shares.to(values.dtype) @ values).view_as(query)
