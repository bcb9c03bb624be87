"""KeyDiff: keep the keys that differ most from the others."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from ..seam.calls import Prompt
from .evicting import Evicting


@dataclass
class KeyDiff(Evicting):
    """Every head keeps the keys whose direction differs most from the mean direction of all its keys.

    No query is looked at, so it makes no difference whether the question is known. Keys that resemble each other say
    the same to most queries; the unusual ones are those that a later query may single out.
    """

    title = "KeyDiff"
    paper = "Park et al., 2025 (KeyDiff), arXiv 2504.15364"

    def key_scores(self, prompt: Prompt) -> Tensor:
        anchor = F.normalize(prompt.key, dim=-1).mean(2, keepdim=True)
        return -F.cosine_similarity(prompt.key, anchor, dim=-1)
