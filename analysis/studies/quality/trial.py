"""A calibration of eviction on trial: what it keeps of held-out prompts, and what follows them loses."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ...fitted import Fitted
from ...methods import METHODS
from ...methods.budgets import AdaKV
from ...methods.evicting import Evicting
from ...models import Model
from ...seam.attention import apply
from ...statistics.inputs import forward
from ..text.calibration import document_windows, longest_window
from .following import NOTHING, follow

# Of a calibration window and of all of them together.
LENGTH, TOKENS = 1024, 8192
# First tokens that the null keeps beside the newest.
SINKS = 4
Kept = dict[int, Tensor]


@dataclass
class Newest(Evicting):
    """The null at equal bytes: the first four keys and the newest ones, as many as any method that evicts."""

    title = "Sinks and the newest"

    def key_scores(self, prompt: Any) -> Tensor:
        """The place of a key."""
        scores = torch.arange(prompt.key.shape[2], device=prompt.key.device, dtype=torch.float32)
        scores[:SINKS] = torch.inf
        return scores.expand(1, prompt.key.shape[1], -1).clone()


@dataclass(frozen=True)
class Kind:
    """How a method is calibrated and used: `fit(lm, windows, ratio)` -> what is fitted, `method(lm, fitted, ratio,
    share)` that uses it."""

    fit: Callable[[Model, Tensor, float], Any]
    method: Callable[[Model, Any, float, str], Any]

    # Its first null, in words.
    null: ClassVar[str] = "the first four keys and the newest, as many of every head: equal bytes"

    def nulls(self, lm: Model, ratio: float) -> dict[str, list[Any]]:
        """What it has to beat, by name; of several methods the mean."""
        return {"null": [Newest(ratio=ratio)]}

    def choices(self, trial: "Trial", fitted: Any) -> list[Kept]:
        """What `agreement` compares of two calibrations: which keys of every prompt stay."""
        prompts = torch.as_tensor(trial.stretches[:, : trial.prefix])
        return [kept_of(trial.lm, trial.method(fitted), ids) for ids in prompts]

    def chance(self, lm: Model, fitted: Any, ratio: float) -> float:
        """The agreement with what is drawn at random."""
        return 1 - ratio

    def told(self, fitted: Any, ratio: float) -> str:
        """How a sentence begins about what it loses."""
        return f"Without {ratio:.0%} of the keys"


def _shares(lm: Model, windows: Tensor, ratio: float) -> np.ndarray:
    """What Ada-KV lets every head keep of calibration windows, on average, float64 [L, G]."""
    kept = [kept_of(lm, AdaKV(ratio=ratio), ids) for ids in windows]
    shares = [[of_text[layer][0].double().mean(-1) for layer in sorted(of_text)] for of_text in kept]
    return torch.stack([torch.stack(of_text) for of_text in shares]).mean(0).cpu().numpy()


def _by_shares(lm: Model, shares: np.ndarray, ratio: float, share: str) -> Evicting:
    # budgets of query heads, of which Ada-KV takes the largest of a group
    budgets = [*np.repeat(shares, lm.num_heads // lm.num_kv_heads, axis=1).ravel().tolist(), 0]
    return AdaKV.build(lambda name: budgets, ratio=ratio, shares="calibrated")


def _calibrated(name: str) -> Kind:
    def fit(lm: Model, windows: Tensor, ratio: float) -> Fitted:
        return vars(METHODS[name]().fit(lm, windows))["fitted"]

    def method(lm: Model, fitted: Fitted, ratio: float, share: str) -> Evicting:
        settings = {"share": share} if name == "triattention" else {}
        return METHODS[name].build(fitted, ratio=ratio, **settings)  # type: ignore[return-value]

    return Kind(fit, method)


KINDS = {
    "triattention": _calibrated("triattention"),
    "kvzap": _calibrated("kvzap"),
    "ada_kv": Kind(_shares, _by_shares),
}


def calibration_windows(lm: Model, named: list[tuple[str, str]]) -> Tensor:
    """Calibration windows [n, T], two at least, so that there are halves of them."""
    longest = min(LENGTH, longest_window(lm, named))
    for size in (longest, longest // 2 - 1, longest // 4):
        windows = document_windows(lm, named, size, TOKENS)[0]
        if len(windows) > 1:
            break
    return torch.as_tensor(windows)


@dataclass
class Trial:
    """Held-out stretches [n, T] of a prompt of `prefix` tokens and what follows."""

    lm: Model
    kind: Any
    ratio: float
    share: str
    stretches: np.ndarray
    prefix: int

    def method(self, fitted: Any) -> Any:
        """The method with what was fitted."""
        return self.kind.method(self.lm, fitted, self.ratio, self.share)

    def losses(self, *methods: Any) -> np.ndarray:
        """Mean loss of each stretch behind its prompt, nats per token [n], mean over methods."""
        texts = [torch.as_tensor(ids) for ids in self.stretches]
        read = [[follow(self.lm, method, ids, self.prefix, NOTHING).losses for ids in texts] for method in methods]
        return np.array(read).mean((0, 2))

    def kept(self, fitted: Any) -> list[Kept]:
        """What a calibration chooses."""
        return self.kind.choices(self, fitted)


def kept_of(lm: Model, method: Evicting, ids: Tensor) -> Kept:
    """layer -> bool [1, G, T]: which keys of a prompt [T] stay."""
    with apply(lm, method, kernels=True):
        forward(lm, ids)
    return dict(method.kept_)


def agreement(one: list[Kept], other: list[Kept]) -> float:
    """Share of the keys that one calibration keeps which the other keeps too, of all prompts, layers and heads."""
    both = sum(int((a[layer] & b[layer]).sum()) for a, b in zip(one, other, strict=True) for layer in a)
    return both / sum(int(stays.sum()) for kept in one for stays in kept.values())
