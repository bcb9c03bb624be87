"""SnapKV: keep the keys of a prompt that its last queries look at."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from ..kernels.scoring import Scoring, at_least_float32
from ..seam.calls import Prompt
from .base import setting
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

    window: int = setting(64, "last tokens of the prompt, whose queries decide and which always stay", "live", 1, 1024)

    def key_scores(self, prompt: Prompt) -> Tensor:
        return snapkv_scores(at_least_float32(prompt.query), at_least_float32(prompt.key), self.window, prompt.scoring)


def snapkv_scores(queries: Tensor, keys: Tensor, window: int, scoring: Scoring) -> Tensor:
    """Queries [B, H, L, D] and keys [B, G, L, D] -> [B, G, L]; the window itself has the largest score."""
    length = keys.shape[2]
    window = min(window, length)
    scores = keys.new_full(keys.shape[:3], MUST_STAY)
    if window < length:
        start = length - window
        mean = attention_weights(queries[:, :, start:], keys, start, scoring).mean(2)[..., :start]  # [B, H, start]
        # as in the authors' code, zeros beyond both ends count in the means
        pooled = F.avg_pool1d(mean, POOL, stride=1, padding=POOL // 2)
        scores[..., :start] = pooled.unflatten(1, (keys.shape[1], -1)).mean(2)
    return scores
