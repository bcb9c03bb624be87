"""The statistics of attention rows by torch, for accelerators: the compiled twin is `measure_rows` of
`analysis.kernels.rows`, and a test holds them together."""

import torch
from torch import Tensor

from ..kernels.native.measured import Texts
from ..kernels.rank import PEAKS, top_p_rank

# Of distance: the token itself, 1, 2 to 3, 4 to 7, ... tokens back.
BINS = 32


def by_torch(scores: Tensor, start: int, about: Texts[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Queries start..start + n of all heads: scores float32 [B, H, n, m], -inf where a key is not visible.

    -> (weights [B, H, n, m] summing to 1, or to 0 where no key is visible; found [B, H, n, 9], NaN where not defined;
    mass by distance [B, H, BINS], summed over the queries and zero without `more`).
    """
    texts, heads, rows, keys = scores.shape
    place = torch.arange(keys, device=scores.device)
    query = torch.arange(start, start + rows, device=scores.device)
    back = query[:, None] - place  # [n, m]
    weights = scores.softmax(-1).nan_to_num_(0.0)
    first = about.first.view(-1, 1, 1, 1)
    sink = weights.gather(-1, first.expand(texts, heads, rows, 1))[..., 0]
    p = weights
    if about.without_first:
        p = scores.masked_fill(place == first, float("-inf")).softmax(-1).nan_to_num_(0.0)
    ids = about.ids
    follows = torch.zeros(texts, rows, keys, dtype=torch.bool, device=scores.device)
    follows[:, :, 1:] = (ids[:, query, None] == ids[:, None, : keys - 1]) & (back[:, 1:] > 0)
    begin = about.first + int(about.without_first)
    real_key = (place >= begin[:, None]) & about.real[:, :keys]
    follows[:, :, 1:] &= (real_key[:, 1:] & about.real[:, : keys - 1])[:, None]
    previous = (p * (back == 1)).sum(-1)
    no_previous = (query <= begin[:, None]) | ~about.real[:, (query - 1).clamp(min=0)]  # [B, n]
    numbers = (
        torch.special.entr(p).sum(-1),
        p.amax(-1),
        top_p_rank(p, about.mass).float().to(p.device),
        sink,
        (p * (back < about.window)).sum(-1),
        (p * back).sum(-1),
        previous.masked_fill(no_previous[:, None], torch.nan),
        (p * follows[:, None]).sum(-1).masked_fill(~follows.any(-1)[:, None], torch.nan),
    )
    peaks = sink * torch.nan
    if about.more:
        # `far_peaks`, NaN without a far key
        visible = scores[:, :1] > float("-inf")  # [B, 1, n, m]
        far = visible & (back >= about.window) & (place > first)
        visible_keys = (visible & (place >= first + int(about.without_first))).sum(-1)
        count = far.sum(-1)  # [B, 1, n]
        strongest = (p * far).topk(min(PEAKS, keys), -1).values.sum(-1)
        even = count.clamp(max=PEAKS) / visible_keys.clamp(min=1)
        peaks = (strongest - even).masked_fill(count == 0, torch.nan)
    measured = torch.stack(torch.broadcast_tensors(*numbers, peaks), -1).double()  # [B, H, n, 9]
    real = about.real[:, None, query]
    empty = (p.sum(-1) <= 0) & real
    measured[empty] = torch.nan
    if about.without_first:
        measured[..., 3] = torch.where(empty, sink.double(), measured[..., 3])
    measured[(~real | (weights.sum(-1) <= 0)).expand(texts, heads, rows)] = torch.nan
    distance = torch.zeros(texts, heads, BINS, device=p.device)
    if about.more:
        p = p * real[..., None]
        bins = torch.bucketize(back.clamp(min=0), 2 ** torch.arange(BINS - 1, device=p.device), right=True)
        distance.index_add_(2, bins.flatten(), p.flatten(2))
    return weights, measured, distance
