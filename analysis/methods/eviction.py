"""Eviction by a score of every key: SnapKV, TOVA, H2O and KeyDiff."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..declaration import field
from ..errors import BadSetting
from ..kernels.pool import AT_ONCE, accelerated
from ..kernels.scoring import Scoring
from ..seam.calls import Prompt, states_alone
from .evicting import Evicting, largest, model_weights
from .while_decoding import WhileDecoding

# Neighbouring keys that share their score.
POOL = 5
# More than any mean of attention weights.
MUST_STAY = 2.0


@dataclass
class SnapKV(WhileDecoding):
    """After the prompt every key-value head keeps the keys that the last `window` queries gave most weight, and that
    window. The rest leaves the KV cache for good.

    The weights are averaged over the window, over five neighbouring keys, so that words stay whole, and over the query
    heads that share the key-value head. The idea: the end of a prompt holds the question, and what it looks at is what
    the answer will need. So the result depends on what stands at the end. Compress a text *before* its question is
    known, and SnapKV keeps what its last sentence happened to look at.
    """

    title = "SnapKV"
    paper = "Li et al., 2024 (SnapKV), arXiv 2404.14469"
    exported_with = {"budget": 0}

    window: int = field(64, "last tokens of the prompt, whose queries decide and which always stay", low=1, high=1024)

    def key_scores(self, prompt: Prompt) -> Tensor:
        scores = prompt.key.new_full(prompt.key.shape[:3], MUST_STAY)
        start = scores.shape[-1] - self.window
        if start > 0:
            weights = model_weights(prompt, max(0, prompt.query.shape[2] - self.window))
            # as in the authors' code, zeros beyond both ends count in the means over neighbours
            pooled = F.avg_pool1d(weights.mean(2)[..., :start], POOL, stride=1, padding=POOL // 2)
            scores[..., :start] = pooled.unflatten(1, (scores.shape[1], -1)).mean(2)
        return scores

    @property
    def scoring_queries(self) -> int:
        """The window."""
        return self.window


@dataclass
class TOVA(WhileDecoding):
    """After the prompt every layer keeps the keys that its last token gave most weight, on average over all heads; all
    heads of a layer keep the same tokens.

    It is the simplest rule that looks at a query. The original drops one token with every token that it makes: here so
    with a budget and a cut after every token. Without a budget the prompt is compressed once and what is made
    afterwards stays.
    """

    title = "TOVA"
    paper = "Oren et al., 2024 (TOVA), arXiv 2401.06104"
    exported_with = {"budget": 0}

    def key_scores(self, prompt: Prompt) -> Tensor:
        held = prompt.key_places.clamp(min=0)
        weights = model_weights(prompt, prompt.query.shape[2] - 1)[:, :, 0]  # [B, H, L]
        # heads may hold other keys: one that a head has dropped has no weight there
        of_heads = held.repeat_interleave(weights.shape[1] // held.shape[1], 1).expand_as(weights)
        last = prompt.now or prompt.key.shape[2]
        sums = weights.new_zeros(len(weights), last).scatter_add(1, of_heads.flatten(1), weights.flatten(1))
        scores = sums.gather(1, held.flatten(1).expand(len(weights), -1)).unflatten(1, held.shape[1:])
        scores = scores / weights.shape[1]
        scores[..., -1] = torch.inf
        return scores

    @property
    def scoring_queries(self) -> int:
        """The last one."""
        return 1


# Queries whose weights are held at once on a processor, and of how many bytes at the most.
ROWS, BYTES = 512, 16 << 20


@dataclass
class H2O(WhileDecoding):
    """Half of a head's budget belongs to the newest keys, half to the *heavy hitters*: the keys with the largest sum of
    weights over all queries of the prompt.

    Early keys are seen by more queries, so the sums favour them; that is the paper's rule. kvpress divides each sum by
    the number of queries that see the key, and keeps no newest half: two other rules, with 61% of the keys in common at
    half of them. The original drops keys while it generates: here so with a budget, by the sums over the queries since
    the last cut. Without one the prompt is compressed once and what is made afterwards stays.
    """

    title = "H2O"
    paper = "Zhang et al., 2023 (H2O), arXiv 2306.14048"
    kernel_scores = 2.3

    def key_scores(self, prompt: Prompt) -> Tensor:
        """Sums of weights; the newest half of the budget is not marked yet."""
        total = prompt.query.new_zeros(*prompt.query.shape[:2], prompt.key.shape[2])  # [B, H, L]
        rows = AT_ONCE // (total.nbytes or 1) if accelerated(total) else min(ROWS, BYTES // (total.nbytes or 1))
        rows = max(1, rows)
        for start in range(0, prompt.query.shape[2], rows):
            total += model_weights(prompt, start, start + rows).sum(2)
        return total.unflatten(1, (prompt.key.shape[1], -1)).mean(2)

    def kept_keys(self, layer: int, scores: Tensor) -> Tensor:
        length = scores.shape[-1]
        count = int(length * (1 - self.removed(layer, length)))
        newest = torch.arange(length, device=scores.device) >= length - count // 2
        return largest(scores.masked_fill(newest, torch.inf), count)


@dataclass
class KeyDiff(WhileDecoding):
    """Every head keeps the keys whose direction differs most from the mean direction of all its keys.

    No query is looked at, so it makes no difference whether the question is known. Keys that resemble each other say
    the same to most queries; the unusual ones are those that a later query may single out.
    """

    title = "KeyDiff"
    paper = "Park et al., 2025 (KeyDiff), arXiv 2504.15364"
    exported_with = {"budget": 0}

    def key_scores(self, prompt: Prompt) -> Tensor:
        anchor = F.normalize(prompt.key, dim=-1).mean(2, keepdim=True)
        return -F.cosine_similarity(prompt.key, anchor, dim=-1)

    @property
    def scoring_queries(self) -> int:
        """None: the keys alone decide."""
        return 0


KINDS: dict[str, type[Evicting]] = {"snapkv": SnapKV, "tova": TOVA, "h2o": H2O, "keydiff": KeyDiff}


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
    rule = KINDS[kind]()
    if isinstance(rule, SnapKV):
        rule.window = window
    return rule.key_scores(states_alone(queries, keys, values, scoring))
