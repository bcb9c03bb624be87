"""Ada-KV: a budget for a layer, which its heads share out by their scores."""

from dataclasses import dataclass

from torch import Tensor

from analysis.calls import Prompt
from analysis.eviction import evict
from analysis.methods.base import setting
from analysis.methods.evicting import SCORES, Evicting, scores

SHARES = {"safe": "layer", "mixed": "mixed"}  # scopes of `evict`


@dataclass
class AdaKV(Evicting):
    """The layer, not the head, has a budget: of all keys of a layer those with the lowest scores leave the KV cache, so
    a head with much to remember keeps more than one that looks at few keys.

    It takes the scores of another rule; those of SnapKV unless chosen otherwise. Keys that a rule never drops, such as
    the first four of expected attention, stay in every head. With *safe* shares the best `safe` part of every head's
    even budget always stays, as kvpress computes it. With *mixed* ones, those of the authors' code, that part of each
    budget is even and the rest as many keys as the head has among the best of the layer. The two keep nearly the same
    keys: 93.5 to 100% in common. Heads then hold different numbers of keys, and the cache is stored so: what is not
    kept takes no memory.
    """

    title = "Ada-KV"
    paper = "Feng et al., 2024 (Ada-KV), arXiv 2407.11550"

    score: str = setting("snapkv", "the rule that scores the keys", "live", options=SCORES)
    safe: float = setting(0.2, "share of an even budget that no head can lose", "live", 0.0, 1.0, 0.05)
    shares: str = setting("safe", "how that share is given: its best keys, or its size", "live", options=tuple(SHARES))
    window: int = setting(64, "last tokens of the prompt that SnapKV looks at", "live", 1, 1024)

    def worth(self, prompt: Prompt) -> Tensor:
        return scores(self.score, prompt, self.window)

    def stay(self, layer: int, worth: Tensor) -> Tensor:
        return evict(worth, self.ratio, SHARES[self.shares], self.safe)
