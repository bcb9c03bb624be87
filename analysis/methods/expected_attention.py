"""Expected attention: keep the keys that queries to come are expected to look at."""

from dataclasses import dataclass

from torch import Tensor

from analysis.calls import Prompt
from analysis.methods.evicting import Evicting, scores


@dataclass
class ExpectedAttention(Evicting):
    """Every head keeps the keys that future queries are expected to give most weight, times the length of their values.

    The queries of the prompt, before their rotation, have a mean and a covariance; a future query is taken as one drawn
    from them, at one of the next 512 positions. What such queries give a key on average has a formula, so nothing is
    sampled. The first four keys always stay. The end of the prompt plays no special part. In the authors' code these
    four take no part in the softmax, and the covariance is divided by n, here by n - 1; on the bundled model 99% of the
    keys are the same at half of them.
    """

    title = "Expected attention"
    paper = "Devoto et al., 2025 (Expected Attention), arXiv 2510.00636"

    def worth(self, prompt: Prompt) -> Tensor:
        return scores("expected_attention", prompt)
