"""Eviction after a prompt by a score of every key: SnapKV, PyramidKV, TOVA, H2O, KeyDiff, and Ada-KV over them."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..declaration import field
from ..errors import BadSetting
from ..kernels.pool import AT_ONCE, accelerated
from ..kernels.scoring import Scoring
from ..seam.calls import Prompt, states_alone
from .evicting import Evicting, evict, largest, model_weights
from .expected_attention import ExpectedAttention

# Neighbouring keys that share their score.
POOL = 5
# More than any mean of attention weights.
MUST_STAY = 2.0


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
    exported_with = {}

    window: int = field(64, "last tokens of the prompt, whose queries decide and which always stay", low=1, high=1024)

    def key_scores(self, prompt: Prompt) -> Tensor:
        scores = prompt.key.new_full(prompt.key.shape[:3], MUST_STAY)
        start = scores.shape[-1] - self.window
        if start > 0:
            weights = model_weights(prompt, start)
            # as in the authors' code, zeros beyond both ends count in the means over neighbours
            pooled = F.avg_pool1d(weights.mean(2)[..., :start], POOL, stride=1, padding=POOL // 2)
            scores[..., :start] = pooled.unflatten(1, (scores.shape[1], -1)).mean(2)
        return scores


# The last layer keeps the mean budget divided by this, beside its window (arXiv 2406.02069).
LAST_LAYER = 20


@dataclass
class PyramidKV(SnapKV):
    """SnapKV's scores with a budget that falls on a line from the first layer to the last.

    Early layers spread their attention and late ones gather it on few tokens, so late layers are given less: the last
    keeps its window and a twentieth of the average, the first nearly twice the average. All layers together keep what
    SnapKV keeps, as long as no layer's share is more than the prompt has. In a prompt shorter than twice what stays,
    the window apart, the first layer would get more than there is: the line is then *turned* flatter about its middle.
    The authors' code gives *even* budgets there, and is SnapKV: of 768 tokens without 25%, 0.019 nats per token of
    loss in the stored table, where the turned line has 0.039.
    """

    title = "PyramidKV"
    paper = "Cai et al., 2024 (PyramidKV), arXiv 2406.02069"

    short: str = field(
        "turned",
        "budgets in a prompt too short for the line: a flatter line, or even ones",
        options=("turned", "even"),
    )

    def kept_keys(self, layer: int, scores: Tensor) -> Tensor:
        length, removed = scores.shape[-1], self.removed(layer)
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


@dataclass
class TOVA(Evicting):
    """After the prompt every layer keeps the keys that its last token gave most weight, on average over all heads; all
    heads of a layer keep the same tokens.

    It is the simplest rule that looks at a query. The original drops one token with every token that it makes; here, as
    for all methods of this kind, the prompt is compressed once and what is made afterwards stays.
    """

    title = "TOVA"
    paper = "Oren et al., 2024 (TOVA), arXiv 2401.06104"
    exported_with = {}

    def key_scores(self, prompt: Prompt) -> Tensor:
        kv_heads, length = prompt.key.shape[1:3]
        weights = model_weights(prompt, length - 1)[:, :, 0]  # [B, H, L]
        scores = weights.mean(1, keepdim=True).repeat(1, kv_heads, 1)
        scores[..., -1] = torch.inf
        return scores


# Queries whose weights are held at once on a processor, and of how many bytes at the most.
ROWS, BYTES = 512, 16 << 20


@dataclass
class H2O(Evicting):
    """Half of a head's budget belongs to the newest keys, half to the *heavy hitters*: the keys with the largest sum of
    weights over all queries of the prompt.

    Early keys are seen by more queries, so the sums favour them; that is the paper's rule. kvpress divides each sum by
    the number of queries that see the key, and keeps no newest half: two other rules, with 61% of the keys in common at
    half of them. The original drops keys while it generates; here, as for all methods of this kind, the prompt is
    compressed once and what is made afterwards stays.
    """

    title = "H2O"
    paper = "Zhang et al., 2023 (H2O), arXiv 2306.14048"

    def key_scores(self, prompt: Prompt) -> Tensor:
        """Sums of weights; the newest half of the budget is not marked yet."""
        total = prompt.query.new_zeros(prompt.query.shape[:3])  # [B, H, L]
        rows = AT_ONCE // (total.nbytes or 1) if accelerated(total) else min(ROWS, BYTES // (total.nbytes or 1))
        rows = max(1, rows)
        for start in range(0, total.shape[2], rows):
            total += model_weights(prompt, start, start + rows).sum(2)
        return total.unflatten(1, (prompt.key.shape[1], -1)).mean(2)

    def kept_keys(self, layer: int, scores: Tensor) -> Tensor:
        length = scores.shape[-1]
        count = int(length * (1 - self.removed(layer)))
        newest = torch.arange(length, device=scores.device) >= length - count // 2
        return largest(scores.masked_fill(newest, torch.inf), count)


@dataclass
class KeyDiff(Evicting):
    """Every head keeps the keys whose direction differs most from the mean direction of all its keys.

    No query is looked at, so it makes no difference whether the question is known. Keys that resemble each other say
    the same to most queries; the unusual ones are those that a later query may single out.
    """

    title = "KeyDiff"
    paper = "Park et al., 2025 (KeyDiff), arXiv 2504.15364"
    exported_with = {}

    def key_scores(self, prompt: Prompt) -> Tensor:
        anchor = F.normalize(prompt.key, dim=-1).mean(2, keepdim=True)
        return -F.cosine_similarity(prompt.key, anchor, dim=-1)


KINDS = ("snapkv", "tova", "h2o", "keydiff")  # of `eviction_scores`
RULES: dict[str, type[Evicting]] = {
    "snapkv": SnapKV,
    "tova": TOVA,
    "h2o": H2O,
    "keydiff": KeyDiff,
    "expected_attention": ExpectedAttention,
}


def rule_of(kind: str, window: int) -> Evicting:
    """A rule that scores keys; only SnapKV has a window."""
    rule = RULES[kind]()
    if isinstance(rule, SnapKV):
        rule.window = window
    return rule


# Shares -> the scope of `evict`.
SCOPES = {"safe": "layer", "mixed": "mixed"}


@dataclass
class AdaKV(Evicting):
    """The layer, not the head, has a budget: of all keys of a layer those with the lowest scores leave the KV cache, so
    a head with much to remember keeps more than one that looks at few keys.

    It takes the scores of another rule; those of SnapKV unless chosen otherwise. Keys that a rule never drops, such as
    the first four of expected attention, stay in every head. With *safe* shares the best `safe` part of every head's
    even budget always stays, as kvpress computes it. With *mixed* ones, those of the authors' code, that part of each
    budget is even and the rest as many keys as the head has among the best of the layer. The two keep nearly the same
    keys: 93.5 to 100% in common. Heads then hold different numbers of keys, and the cache is stored so: what is not
    kept takes no memory.
    """

    title = "Ada-KV"
    paper = "Feng et al., 2024 (Ada-KV), arXiv 2407.11550"

    score: str = field("snapkv", "the rule that scores the keys", options=tuple(RULES))
    safe: float = field(0.2, "share of an even budget that no head can lose", low=0.0, high=1.0, step=0.05)
    shares: str = field("safe", "how that share is given: its best keys, or its size", options=tuple(SCOPES))
    window: int = field(64, "last tokens of the prompt that SnapKV looks at", low=1, high=1024)

    def key_scores(self, prompt: Prompt) -> Tensor:
        return rule_of(self.score, self.window).key_scores(prompt)

    def kept_keys(self, layer: int, scores: Tensor) -> Tensor:
        return evict(scores, self.removed(layer), SCOPES[self.shares], self.safe)


@torch.no_grad()
def eviction_scores(
    kind: str, queries: Tensor, keys: Tensor, values: Tensor, window: int = 64, scoring: Scoring | None = None
) -> Tensor:
    """The score of every key of a prompt, [B, G, L]; larger means keep.

    queries [B, H, L, D], keys and values [B, G, L, D], queries and keys with their rotation. Scores are float32, or
    float64 of float64 states. Kinds:

    - `snapkv` (arXiv 2404.14469): the mean weight that the last `window` queries give a key, averaged over five
      neighbouring keys and over the group. The window itself has the largest score.
    - `tova` (arXiv 2401.06104): the weight that the last query gives a key, mean over all heads. The last key has the
      largest score.
    - `h2o` (arXiv 2306.14048): the weights that all queries give a key, summed, mean over the group. Half of the
      budget belongs to the most recent keys, whatever their score: `H2O.kept_keys` gives it to them.
    - `keydiff` (arXiv 2504.15364): minus the cosine of a key and the mean of all normalised keys. It sees no query.

    `window` counts for `snapkv` only; `scoring` is how the layer makes scores of them, 1/sqrt(D) unless given. Errors:
    BadSetting for another kind, or shapes that do not belong together.
    """
    if kind not in KINDS:
        raise BadSetting(f"There is no eviction score {kind!r}; there are: {', '.join(KINDS)}.")
    if window < 1:
        raise BadSetting(f"window is {window} and must be at least 1.")
    return rule_of(kind, window).key_scores(states_alone(queries, keys, values, scoring))
