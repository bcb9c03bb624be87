"""From the worth of every key to the keys that stay: as many of every head, or shared out over the heads of a layer."""

import torch
from torch import Tensor

from analysis.errors import BadSetting

SCOPES = ("head", "layer", "mixed")


@torch.no_grad()
def evict(scores: Tensor, ratio: float, scope: str = "head", safe: float = 0.2) -> Tensor:
    """Which keys stay: bool [B, G, L], True = kept, of scores [B, G, L], after the share `ratio` of them is removed.

    `head`: the n = int(L (1 - ratio)) keys of largest score of every head. `layer` (Ada-KV, arXiv 2407.11550): the best
    int(safe n) keys of every head are safe; of the others those with the lowest scores of the whole layer go, so that
    the layer keeps G n. `mixed` (the code of Ada-KV's authors): a head keeps the share `safe` of n and the share
    1 - safe of how many of its keys are among the best G n of the layer, rounded. Of equal scores the later key stays.
    Errors: BadSetting.
    """
    if not 0 <= ratio < 1:
        raise BadSetting(f"ratio is {ratio} and must be at least 0 and below 1: the share of the keys that is removed.")
    return keep_most(scores, int(scores.shape[-1] * (1 - ratio)), scope, safe)


@torch.no_grad()
def keep_most(scores: Tensor, count: int, scope: str = "head", safe: float = 0.2) -> Tensor:
    """As `evict`, with the number of keys that a head keeps: bool [B, G, L]. Errors: BadSetting."""
    if scope not in SCOPES or not 0 <= safe <= 1:
        raise BadSetting(
            f"scope is {scope!r} and must be one of {', '.join(SCOPES)}; safe is {safe} and must lie between 0 and 1."
        )
    count = min(count, scores.shape[-1])
    if scope == "head":
        return _largest(scores, count)
    if scope == "mixed":
        best = _of_layer(scores, count).sum(-1)  # [B, G]
        return _ranks(scores) < (safe * count + (1 - safe) * best).round()[..., None]
    return _of_layer(scores.masked_fill(_largest(scores, int(safe * count)), torch.inf), count)


def recent_half(scores: Tensor, count: int) -> Tensor:
    """The scores with the newest half of a budget of `count` keys put before all others, as H2O splits it."""
    places = torch.arange(scores.shape[-1], device=scores.device)
    return scores.masked_fill(places >= scores.shape[-1] - count // 2, torch.inf)


def falling(layer: int, layers: int, count: int, window: int, length: int) -> int:
    """Keys that a head of `layer` keeps where `count` of `length` is the mean over `layers` (PyramidKV, arXiv
    2406.02069).

    Beside the `window`, which always stays, the budget falls on a line from the first layer to the last: the last has a
    twentieth of what a layer has on average, the first twice as much less that, and none more than there are keys.
    """
    spare = max(0, count - window)
    least = spare / 20
    most = 2 * spare - least
    room = max(0, length - window)
    if most > room:  # the line turns about its middle
        least, most = least + most - room, room
    share = layer / (layers - 1) if layers > 1 else 0.5
    return min(count, window) + round(most - share * (most - least))


def _of_layer(scores: Tensor, count: int) -> Tensor:
    """bool like scores [B, G, L]: the `count` G largest of all heads; of equal ones the later, whatever its head."""
    flat = scores.transpose(1, 2).flatten(1)  # [B, L G]
    return _largest(flat, count * scores.shape[1]).unflatten(1, (-1, scores.shape[1])).transpose(1, 2).contiguous()


def _largest(scores: Tensor, count: int) -> Tensor:
    """bool like scores [..., N]: the `count` largest, of equal ones the last."""
    order = scores.flip(-1).argsort(dim=-1, descending=True, stable=True)[..., :count]
    return torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, scores.shape[-1] - 1 - order, True)


def _ranks(scores: Tensor) -> Tensor:
    """Of scores [..., N] how many are larger, or as large and later."""
    order = scores.flip(-1).argsort(dim=-1, descending=True, stable=True)
    return order.argsort(dim=-1).flip(-1)
