"""H2O: keep the keys that all queries together looked at most, and the newest ones."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..kernels.scoring import Scoring, at_least_float32
from ..seam.calls import Prompt
from .evicting import Evicting, attention_weights, keep_most

ROWS, BYTES = 512, 16 << 20  # queries whose weights are held at once, and of how many bytes at the most


@dataclass
class H2O(Evicting):
    """Half of a head's budget belongs to the newest keys, half to the *heavy hitters*: the keys with the largest sum of
    weights over all queries of the prompt.

    Early keys are seen by more queries, so the sums favour them; that is the paper's rule. kvpress divides each sum by
    the number of queries that see the key, and keeps no newest half: two other rules, with 61% of the keys in common at
    half of them. The original drops keys while it generates; here, as for all methods of this kind, the prompt is
    compressed once and what is made afterwards stays.
    """

    title = "H2O"
    paper = "Zhang et al., 2023 (H2O), arXiv 2306.14048"

    def key_scores(self, prompt: Prompt) -> Tensor:
        return h2o_scores(at_least_float32(prompt.query), at_least_float32(prompt.key), prompt.scoring)

    def kept_keys(self, layer: int, scores: Tensor) -> Tensor:
        count = int(scores.shape[-1] * (1 - self.removed(layer)))
        return keep_most(recent_half(scores, count), count)


def h2o_scores(queries: Tensor, keys: Tensor, scoring: Scoring) -> Tensor:
    """Queries [B, H, L, D] and keys [B, G, L, D] -> [B, G, L]; the newest half of the budget is not marked yet."""
    total = queries.new_zeros(*queries.shape[:2], keys.shape[2])
    rows = max(1, min(ROWS, BYTES // (total.nbytes or 1)))
    for start in range(0, keys.shape[2], rows):
        total += attention_weights(queries[:, :, start : start + rows], keys, start, scoring).sum(2)
    return total.unflatten(1, (keys.shape[1], -1)).mean(2)


def recent_half(scores: Tensor, count: int) -> Tensor:
    """The scores with the newest half of a budget of `count` keys put before all others."""
    places = torch.arange(scores.shape[-1], device=scores.device)
    return scores.masked_fill(places >= scores.shape[-1] - count // 2, torch.inf)
