"""KeyDiff: keep the keys that differ most from the others."""

from dataclasses import dataclass

from torch import Tensor

from analysis.calls import Prompt
from analysis.methods.evicting import Evicting, scores


@dataclass
class KeyDiff(Evicting):
    """Every head keeps the keys whose direction differs most from the mean direction of all its keys.

    No query is looked at, so it makes no difference whether the question is known. Keys that resemble each other say
    the same to most queries; the unusual ones are those that a later query may single out.
    """

    title = "KeyDiff"
    paper = "Park et al., 2025 (KeyDiff), arXiv 2504.15364"

    def worth(self, prompt: Prompt) -> Tensor:
        return scores("keydiff", prompt)
