"""TOVA: keep the keys that the last token looks at."""

from dataclasses import dataclass

from torch import Tensor

from analysis.calls import Prompt
from analysis.methods.evicting import Evicting, scores


@dataclass
class TOVA(Evicting):
    """After the prompt every layer keeps the keys that its last token gave most weight, on average over all heads; all
    heads of a layer keep the same tokens.

    It is the simplest rule that looks at a query. The original drops one token with every token that it makes; here, as
    for all methods of this kind, the prompt is compressed once and what is made afterwards stays.
    """

    title = "TOVA"
    paper = "Oren et al., 2024 (TOVA), arXiv 2401.06104"

    def worth(self, prompt: Prompt) -> Tensor:
        return scores("tova", prompt)
