"""SnapKV: keep the keys of a prompt that its last queries look at."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from ..declaration import field
from ..seam.calls import Prompt
from .evicting import Evicting, attention_weights

POOL = 5  # neighbouring keys that share their score
MUST_STAY = 2.0  # more than any mean of attention weights


@dataclass
class SnapKV(Evicting):
    """After the prompt every key-value head keeps the keys that the last `window` queries gave most weight, and that
    window. The rest leaves the KV cache for good.

    The weights are averaged over the window, over five neighbouring keys, so that words stay whole, and over the query
    heads that share the key-value head. The idea: the end of a prompt holds the question, and what it looks at is what
    the answer will need. So the result depends on what stands at the end. Compress a text *before* its question is
    known, and SnapKV keeps what its last sentence happened to look at.
    """

    title = "SnapKV"
    paper = "Li et al., 2024 (SnapKV), arXiv 2404.14469"

    window: int = field(64, "last tokens of the prompt, whose queries decide and which always stay", low=1, high=1024)

    def key_scores(self, prompt: Prompt) -> Tensor:
        scores = prompt.key.new_full(prompt.key.shape[:3], MUST_STAY)
        start = scores.shape[-1] - self.window
        if start > 0:
            weights = attention_weights(prompt.query[:, :, start:], prompt.key, start, prompt.scoring)
            # as in the authors' code, zeros beyond both ends count in the means over neighbours
            pooled = F.avg_pool1d(weights.mean(2)[..., :start], POOL, stride=1, padding=POOL // 2)
            scores[..., :start] = pooled.unflatten(1, (scores.shape[1], -1)).mean(2)
        return scores
