"""Budgets over any score: Ada-KV shares them out over the heads of a layer, PyramidKV over the layers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..declaration import field
from ..errors import BadSetting, NotFitted
from ..metrics.budgets import allocate_budget
from ..seam.calls import Prompt
from ..seam.layers import shape_of
from .evicting import Evicting, evict, largest, ranks
from .eviction import KINDS, SnapKV
from .expected_attention import ExpectedAttention
from .kvzip import KVzap, KVzipPlus
from .triattention import TriAttention
from .while_decoding import WhileDecoding

RULES: dict[str, type[Evicting]] = KINDS | {
    "expected_attention": ExpectedAttention,
    "triattention": TriAttention,
    "kvzip_plus": KVzipPlus,
    "kvzap": KVzap,
}


@dataclass
class ByRule(WhileDecoding):
    """Shares out budgets in a way of its own, by the scores of another rule."""

    # "rule": what any method needs is found by its name.
    needs = "rule"

    score: str = field("snapkv", "the rule that scores the keys", options=tuple(RULES))
    window: int = field(64, "last tokens of the prompt that SnapKV looks at", low=1, high=1024)
    fitted: Callable[[str], Any] | None = None

    def needed(self, name: str) -> Any:
        """What the method of this name needs. Errors: NotFitted."""
        if self.fitted is None:
            raise NotFitted(f"{self.title} takes what was fitted for {name}: build it for a model.")
        return self.fitted(name)

    def check(self, lm: Any) -> None:
        super().check(lm)
        self.rule_ = RULES[self.score]()
        if self.budget and not isinstance(self.rule_, WhileDecoding):
            raise BadSetting(
                f"{self.rule_.title} scores the keys of a prompt alone, so nothing is known of tokens that are written "
                "later: leave the budget at 0, or choose another score."
            )
        if isinstance(self.rule_, SnapKV):
            self.rule_.window = self.window
        if self.rule_.needs:
            vars(self.rule_)["fitted"] = self.needed(self.score)
        vars(self.rule_).update(cut=self.cut, every=self.every)
        self.rule_.check(lm)

    def before_prompt(self, lm: Any, ids: Tensor | None, mask: Tensor | None) -> None:
        if isinstance(self.rule_, KVzipPlus):
            self.rule_.before_prompt(lm, ids, mask)

    def token_features(self, layer: int, hidden: Tensor, not_padding: Tensor | None) -> Tensor | None:
        return self.rule_.token_features(layer, hidden, not_padding)

    def key_scores(self, prompt: Prompt) -> Tensor:
        return self.rule_.key_scores(prompt)

    @property
    def scoring_queries(self) -> int:
        """Those of the rule."""
        return getattr(self.rule_, "scoring_queries", 0)


# The last layer keeps the mean budget divided by this, beside its window (arXiv 2406.02069).
LAST_LAYER = 20


@dataclass
class PyramidKV(ByRule):
    """SnapKV's scores, or another rule's, with a budget that falls on a line from the first layer to the last.

    Early layers spread their attention and late ones gather it on few tokens, so late layers are given less: the last
    keeps its window and a twentieth of the average, the first nearly twice the average. All layers together keep what
    SnapKV keeps, as long as no layer's share is more than the prompt has. In a prompt shorter than twice what stays,
    the window apart, the first layer would get more than there is: the line is then *turned* flatter about its middle.
    The authors' code gives *even* budgets there, and is SnapKV: of 1,024 tokens at 57% of the bytes, 0.21 nats per
    token of loss in the stored table of equal bytes, where the turned line has 0.59.
    """

    title = "PyramidKV"
    paper = "Cai et al., 2024 (PyramidKV), arXiv 2406.02069"

    short: str = field(
        "turned", "budgets in a prompt too short for the line: a flatter line, or even ones", options=("turned", "even")
    )

    def kept_keys(self, layer: int, scores: Tensor) -> Tensor:
        length, removed = scores.shape[-1], self.removed(layer, scores.shape[-1])
        mean = int(length * (1 - removed))
        if self.short == "even" and length < 2 * (mean - self.window):
            return evict(scores, removed)
        return largest(scores, falling_budget(layer, self.layers_, mean, self.window, length))


def falling_budget(layer: int, layers: int, count: int, window: int, length: int) -> int:
    """Keys that a head of `layer` keeps where `count` of `length` is the mean over `layers`.

    Beside the `window`, which always stays, the budget falls on a line from the first layer to the last: the last has a
    twentieth of the mean, the first twice the mean less that, and none more than there are keys.
    """
    spare = max(0, count - window)
    low = spare / LAST_LAYER
    high = 2 * spare - low
    room = max(0, length - window)
    # Where the first layer would get more than there is, the line turns about its middle, which keeps the sum.
    if high > room:
        low, high = low + high - room, room
    depth = layer / (layers - 1) if layers > 1 else 0.5
    return min(count, window) + round(high - depth * (high - low))


# Shares -> the scope of `evict`; and those by the budgets of Calibrated Sparse Attention.
SCOPES = {"safe": "layer", "mixed": "mixed"}
CALIBRATED = "calibrated"


@dataclass
class AdaKV(ByRule):
    """The layer, not the head, has a budget: of all keys of a layer those with the lowest scores leave the KV cache, so
    a head with much to remember keeps more than one that looks at few keys.

    It takes the scores of another rule; those of SnapKV unless chosen otherwise. Keys that a rule never drops, such as
    the first four of expected attention, stay in every head. With *safe* shares the best `safe` part of every head's
    even budget always stays, as kvpress computes it. With *mixed* ones, those of the authors' code, that part of each
    budget is even and the rest as many keys as the head has among the best of the layer. The two keep nearly the same
    keys: 93.5 to 100% in common. With *calibrated* ones every head of the model keeps keys in proportion to its budget
    under Calibrated Sparse Attention, whatever the text. Heads then hold different numbers of keys, and the cache is
    stored so: what is not kept takes no memory.
    """

    title = "Ada-KV"
    paper = "Feng et al., 2024 (Ada-KV), arXiv 2407.11550"

    safe: float = field(0.2, "share of an even budget that no head can lose", low=0.0, high=1.0, step=0.05)
    shares: str = field(
        "safe", "how that share is given: its best keys, or its size; or budgets of csa", options=(*SCOPES, CALIBRATED)
    )

    def check(self, lm: Any) -> None:
        super().check(lm)
        if self.shares == CALIBRATED:
            layers, heads, kv_heads, _ = shape_of(lm)
            budgets = np.asarray(self.needed("csa")[:-1], dtype=float).reshape(layers, heads)
            self.budgets_ = budgets.reshape(layers, kv_heads, -1).max(2)

    def kept_keys(self, layer: int, scores: Tensor) -> Tensor:
        if self.shares == CALIBRATED:
            length = scores.shape[-1]
            counts = in_proportion(self.budgets_, int(length * (1 - self.removed(layer, length))), length)[layer]
            return ranks(scores) < torch.as_tensor(counts, device=scores.device)[:, None]
        return evict(scores, self.removed(layer, scores.shape[-1]), SCOPES[self.shares], self.safe)


def in_proportion(budgets: np.ndarray, count: int, length: int) -> np.ndarray:
    """Keys of every head, whole numbers [L, G] in proportion to `budgets` [L, G]: `count` on average, none above
    `length`, in whose place the others get more."""
    counts, shares = np.zeros(budgets.size, dtype=np.int64), budgets.ravel()
    while (missing := count * budgets.size - counts.sum()) > 0:
        room = np.flatnonzero(counts < length)
        counts[room] += allocate_budget(shares[room][None], int(missing), floor=0)[0]
        counts = counts.clip(max=length)
    return counts.reshape(budgets.shape)
