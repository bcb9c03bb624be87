"""Ada-KV: a budget for a layer, which its heads share out by their scores."""

from dataclasses import dataclass

from torch import Tensor

from ..declaration import field
from ..seam.calls import Prompt
from .evicting import Evicting, evict
from .expected_attention import ExpectedAttention
from .h2o import H2O
from .keydiff import KeyDiff
from .snapkv import SnapKV
from .tova import TOVA

RULES: dict[str, type[Evicting]] = {
    "snapkv": SnapKV,
    "tova": TOVA,
    "h2o": H2O,
    "keydiff": KeyDiff,
    "expected_attention": ExpectedAttention,
}
SCOPES = {"safe": "layer", "mixed": "mixed"}  # shares -> the scope of `evict`


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

    score: str = field("snapkv", "the rule that scores the keys", options=tuple(RULES))
    safe: float = field(0.2, "share of an even budget that no head can lose", low=0.0, high=1.0, step=0.05)
    shares: str = field("safe", "how that share is given: its best keys, or its size", options=tuple(SCOPES))
    window: int = field(64, "last tokens of the prompt that SnapKV looks at", low=1, high=1024)

    def key_scores(self, prompt: Prompt) -> Tensor:
        rule = RULES[self.score]()
        rule.window = self.window
        return rule.key_scores(prompt)

    def kept_keys(self, layer: int, scores: Tensor) -> Tensor:
        return evict(scores, self.removed(layer), SCOPES[self.shares], self.safe)
