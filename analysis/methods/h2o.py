"""H2O: keep the keys that all queries together looked at most, and the newest ones."""

from dataclasses import dataclass

from torch import Tensor

from analysis.calls import Prompt
from analysis.eviction.budget import keep_most, recent_half
from analysis.methods.evicting import Evicting, scores


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

    def worth(self, prompt: Prompt) -> Tensor:
        return scores("h2o", prompt)

    def stay(self, layer: int, worth: Tensor) -> Tensor:
        count = int(worth.shape[-1] * (1 - self.ratio))
        return keep_most(recent_half(worth, count), count)
