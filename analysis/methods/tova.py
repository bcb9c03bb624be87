"""TOVA: keep the keys that the last token of a prompt looks at."""

from dataclasses import dataclass

from torch import Tensor

from ..kernels.scoring import Scoring, at_least_float32
from ..seam.calls import Prompt
from .evicting import Evicting, attention_weights

MUST_STAY = 2.0  # more than any mean of attention weights


@dataclass
class TOVA(Evicting):
    """After the prompt every layer keeps the keys that its last token gave most weight, on average over all heads; all
    heads of a layer keep the same tokens.

    It is the simplest rule that looks at a query. The original drops one token with every token that it makes; here, as
    for all methods of this kind, the prompt is compressed once and what is made afterwards stays.
    """

    title = "TOVA"
    paper = "Oren et al., 2024 (TOVA), arXiv 2401.06104"

    def key_scores(self, prompt: Prompt) -> Tensor:
        return tova_scores(at_least_float32(prompt.query), at_least_float32(prompt.key), prompt.scoring)


def tova_scores(queries: Tensor, keys: Tensor, scoring: Scoring) -> Tensor:
    """Queries [B, H, L, D] and keys [B, G, L, D] -> [B, G, L]; the last key has the largest score."""
    last = attention_weights(queries[:, :, -1:], keys, keys.shape[2] - 1, scoring)[:, :, 0]  # [B, H, L]
    scores = last.mean(1, keepdim=True).repeat(1, keys.shape[1], 1)
    scores[..., -1] = MUST_STAY
    return scores
