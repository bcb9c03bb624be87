"""DuoAttention: heads that look far back keep everything, the others sinks and a window."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..declaration import field
from ..errors import BadSetting, NotFitted
from ..fitted import Fitted, check_shapes
from ..seam.calls import Prompt
from ..seam.layers import shape_of
from ..statistics import attention_statistics
from .evicting import Evicting

# Tokens that count as near when heads are scored.
NEAR = 128


@dataclass
class DuoAttention(Evicting):
    """The heads that retrieve least keep only the first tokens and a window of the prompt; the others keep every key.

    A head's score is the attention that it gives to neither the first token nor the last 128, measured exactly on a
    calibration text: the original trains such a score instead, and a file of trained ones can be read. `ratio` is the
    share of all key-value heads that keep sinks and a window only, so that share of the KV cache goes but for their
    sinks and windows. Tokens after the prompt stay in both kinds of heads; in the original the window moves on.
    """

    title = "DuoAttention"
    paper = "Xiao et al., 2024 (DuoAttention), arXiv 2410.10819"
    needs = "calibration"

    n_sink: int = field(16, "first tokens that a head without retrieval keeps", low=0, high=256)
    window: int = field(64, "last tokens that such a head keeps", low=1, high=4096)
    fitted: Fitted | None = None

    def fit(self, model: Any, windows: Tensor) -> "DuoAttention":
        """How much each key-value head reads far back, [L, G], the mean over its query heads and the windows."""
        far = np.mean([far_mass(model, window.cpu().numpy()) for window in windows], axis=0)
        by_head = torch.from_numpy(far).view(model.num_layers, model.num_kv_heads, -1)
        self.fitted = Fitted("duo_attention", {"far": by_head.mean(2).float()})
        return self

    def check(self, lm: Any) -> None:
        super().check(lm)
        if self.fitted is None:
            raise NotFitted("DuoAttention has no scores of heads yet: calibrate it with `fit-method duo_attention`.")
        layers, _, kv_heads, _ = shape_of(lm)
        check_shapes(self.fitted, {"far": (layers, 1 if self.fitted["far"].shape[1:] == (1,) else kv_heads)})
        self.fitted.to(lm.device)

    def key_scores(self, prompt: Prompt) -> Tensor:
        """Infinite for every key of a head that retrieves, and for sinks and window; elsewhere 0."""
        kv_heads, length = prompt.key.shape[1:3]
        assert self.fitted is not None, "check refuses a method without scores of heads"
        streaming = self.streaming(self.fitted["far"].expand(-1, kv_heads))
        places = torch.arange(length, device=prompt.key.device)
        near = (places < self.n_sink) | (places >= length - self.window)
        retrieves = ~streaming[prompt.layer].to(places.device)
        return torch.where(retrieves[:, None] | near, torch.inf, 0.0)[None]

    def streaming(self, scores: Tensor) -> Tensor:
        """bool [L, G]: the heads of lowest score [L, G], a share `ratio` of all, which keep sinks and a window only."""
        chosen = torch.zeros(scores.numel(), dtype=torch.bool, device=scores.device)
        chosen[scores.flatten().argsort(stable=True)[: int(self.ratio * scores.numel())]] = True
        return chosen.view(scores.shape)

    def kept_keys(self, layer: int, scores: Tensor) -> Tensor:
        return scores > 0


def far_mass(model: Any, ids: np.ndarray) -> np.ndarray:
    """Attention of every head to neither the first token nor the last NEAR, mean over the queries of ids int64 [T]:
    [L * H], layer by layer."""
    statistics = attention_statistics(model, ids, window=NEAR)
    # their window holds it too
    early = attention_statistics(model, ids[:NEAR], window=NEAR)["first_token_mass"]
    twice = early * min(NEAR, len(ids)) / len(ids)
    return (1 - statistics["window_mass"] - statistics["first_token_mass"] + twice).to_numpy()


def heads_of_file(path: Path) -> Fitted:
    """The scores of heads that somebody trained: a published `full_attention_heads.tsv`, L lines of G numbers.

    Errors: BadSetting for a file that holds none.
    """
    try:
        far = torch.from_numpy(np.loadtxt(path, ndmin=2))
    except (OSError, ValueError):
        raise BadSetting(f"{path.name} holds no table of numbers, a line for each layer: give one.") from None
    return Fitted("duo_attention", {"far": far.float()}, {"file": path.name})
