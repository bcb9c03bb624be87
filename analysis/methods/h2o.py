"""H2O: keep the keys that all queries together looked at most, and the newest ones."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..seam.calls import Prompt
from .evicting import Evicting, attention_weights, largest

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
        """Sums of weights; the newest half of the budget is not marked yet."""
        total = prompt.query.new_zeros(prompt.query.shape[:3])  # [B, H, L]
        rows = max(1, min(ROWS, BYTES // (total.nbytes or 1)))
        for start in range(0, total.shape[2], rows):
            total += attention_weights(prompt.query[:, :, start : start + rows], prompt.key, start, prompt.scoring).sum(
                2
            )
        return total.unflatten(1, (prompt.key.shape[1], -1)).mean(2)

    def kept_keys(self, layer: int, scores: Tensor) -> Tensor:
        length = scores.shape[-1]
        count = int(length * (1 - self.removed(layer)))
        newest = torch.arange(length, device=scores.device) >= length - count // 2
        return largest(scores.masked_fill(newest, torch.inf), count)
