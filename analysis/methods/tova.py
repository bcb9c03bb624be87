"""TOVA: keep the keys that the last token of a prompt looks at."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..seam.calls import Prompt
from .evicting import Evicting, attention_weights


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
        kv_heads, length = prompt.key.shape[1:3]
        weights = attention_weights(prompt.query[:, :, -1:], prompt.key, length - 1, prompt.scoring)[
            :, :, 0
        ]  # [B, H, L]
        scores = weights.mean(1, keepdim=True).repeat(1, kv_heads, 1)
        scores[..., -1] = torch.inf
        return scores
