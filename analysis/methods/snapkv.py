"""SnapKV: keep the keys of a prompt that its last queries look at."""

from dataclasses import dataclass

from torch import Tensor

from analysis.calls import Prompt
from analysis.methods.base import setting
from analysis.methods.evicting import Evicting, scores


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

    def worth(self, prompt: Prompt) -> Tensor:
        return scores("snapkv", prompt, self.window)
