"""How much a key of a prompt is worth keeping, by the rules that are compared most: larger scores stay.

Shapes: B texts, H query heads, G key-value heads, L keys of the prompt, D dimensions. A *group* is the H / G
neighbouring query heads that share a key-value head. All scores are float32, or float64 of float64 states.
"""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from analysis.errors import BadSetting
from analysis.kernels.scoring import Scoring

MUST_STAY = 2.0  # more than any mean of attention weights
POOL = 5  # keys that share their score in SnapKV
ROWS, BYTES = 512, 16 << 20  # queries whose weights are held at once, and of how many bytes at the most
REACH, SINKS = 512, 4  # positions ahead that expected attention looks at, and the first keys that it never drops
NODES = 32  # of the quadrature under a soft cap: under 50 (Gemma 2) to 1e-6 for scores that spread by 10, 2e-5 by 20


@torch.no_grad()
def eviction_scores(
    kind: str, queries: Tensor, keys: Tensor, values: Tensor, window: int = 64, scoring: Scoring | None = None
) -> Tensor:
    """The worth of every key of a prompt, [B, G, L]; larger means keep.

    queries [B, H, L, D], keys and values [B, G, L, D], queries and keys with their rotation. Kinds:

    - `snapkv` (arXiv 2404.14469): the mean weight that the last `window` queries give a key, averaged over five
      neighbouring keys and over the group. The window itself has the largest score.
    - `tova` (arXiv 2401.06104): the weight that the last query gives a key, mean over all heads. The last key has the
      largest score.
    - `h2o` (arXiv 2306.14048): the weights that all queries give a key, summed, mean over the group. Half of the
      budget belongs to the most recent keys; `analysis.eviction.budget.recent_half` gives it to them.
    - `keydiff` (arXiv 2504.15364): minus the cosine of a key and the mean of all normalised keys. It sees no query.

    `window` counts for `snapkv` only; `scoring` is how the layer makes scores of them, 1/sqrt(D) unless given. Errors:
    BadSetting for another kind, or shapes that do not belong together.
    """
    if kind not in KINDS:
        raise BadSetting(f"There is no eviction score {kind!r}; there are: {', '.join(KINDS)}.")
    fits = queries.shape[0] == keys.shape[0] and queries.shape[2:] == keys.shape[2:] and keys.shape == values.shape
    if not fits or queries.shape[1] % keys.shape[1]:
        raise BadSetting(
            f"Queries {list(queries.shape)}, keys {list(keys.shape)} and values {list(values.shape)} do not belong "
            "together: [B, H, L, D] and twice [B, G, L, D] are needed, G a divisor of H."
        )
    if window < 1:
        raise BadSetting(f"window is {window} and must be at least 1.")
    return KINDS[kind](exact(queries), exact(keys), window, scoring or Scoring.plain(queries))


def expected_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    turn: Callable[[Tensor], Tensor],
    sinks: int = SINKS,
    scoring: Scoring | None = None,
) -> Tensor:
    """What future queries are expected to give a key, times the length of its value: [B, G, L] (arXiv 2510.00636).

    queries [B, H, L, D] *before* their rotation, of which the first `sinks` are left out; keys [B, G, L, D] with it.
    `turn` is linear: it rotates vectors [B, H, n, D] by the mean rotation of the positions to come. Future queries are
    taken for normal, so the expected weight of a key is the softmax of its mean score plus half of its variance. The
    first `sinks` keys have the largest score. `scoring` is how the layer makes scores, 1/sqrt(D) unless given.
    """
    scoring = scoring or Scoring.plain(queries)
    queries, keys = exact(queries), exact(keys)
    group = queries.shape[1] // keys.shape[1]
    known = queries[:, :, min(sinks, queries.shape[2] - 1) :]  # [B, H, n, D]
    mean = known.mean(2, keepdim=True)
    spread = known - mean
    spread = spread.transpose(2, 3) @ spread / max(1, known.shape[2] - 1)  # [B, H, D, D]
    mean = turn(mean)
    spread = turn(turn(spread).transpose(2, 3))  # R S R', symmetric
    repeated = keys.repeat_interleave(group, 1)  # [B, H, L, D]
    scores = (repeated @ mean.transpose(2, 3))[..., 0] * scoring.factor
    variance = ((repeated @ spread) * repeated).sum(-1) * scoring.factor**2
    weights = torch.softmax(_expected(scores, variance, scoring), -1).unflatten(1, (-1, group)).mean(2)  # [B, G, L]
    worth = weights * exact(values).norm(dim=-1)
    worth[..., :sinks] = torch.inf
    return worth


def _expected(scores: Tensor, variance: Tensor, scoring: Scoring) -> Tensor:
    """The logarithm of the mean exponential of normal scores [...]: a formula, but for scores under a soft cap."""
    if scoring.softcap is None:
        return scores + variance / 2
    nodes, shares = (scores.new_tensor(x) for x in np.polynomial.hermite_e.hermegauss(NODES))
    drawn = scores[..., None] + variance.clamp(min=0).sqrt()[..., None] * nodes  # [..., NODES]
    return (scoring.capped(drawn) + (shares / shares.sum()).log()).logsumexp(-1)


def _snapkv(queries: Tensor, keys: Tensor, window: int, scoring: Scoring) -> Tensor:
    length = keys.shape[2]
    window = min(window, length)
    scores = keys.new_full(keys.shape[:3], MUST_STAY)
    if window < length:
        start = length - window
        mean = weights(queries[:, :, start:], keys, start, scoring).mean(2)[..., :start]  # [B, H, L - window]
        pooled = F.avg_pool1d(mean, POOL, stride=1, padding=POOL // 2)  # zeros beyond both ends count
        scores[..., :start] = pooled.unflatten(1, (keys.shape[1], -1)).mean(2)
    return scores


def _tova(queries: Tensor, keys: Tensor, window: int, scoring: Scoring) -> Tensor:
    last = weights(queries[:, :, -1:], keys, keys.shape[2] - 1, scoring)[:, :, 0]  # [B, H, L]
    scores = last.mean(1, keepdim=True).repeat(1, keys.shape[1], 1)
    scores[..., -1] = MUST_STAY
    return scores


def _h2o(queries: Tensor, keys: Tensor, window: int, scoring: Scoring) -> Tensor:
    total = queries.new_zeros(*queries.shape[:2], keys.shape[2])
    rows = max(1, min(ROWS, BYTES // (total.nbytes or 1)))
    for start in range(0, keys.shape[2], rows):
        total += weights(queries[:, :, start : start + rows], keys, start, scoring).sum(2)
    return total.unflatten(1, (keys.shape[1], -1)).mean(2)


def _keydiff(queries: Tensor, keys: Tensor, window: int, scoring: Scoring) -> Tensor:
    anchor = F.normalize(keys, dim=-1).mean(2, keepdim=True)
    return -F.cosine_similarity(keys, anchor, dim=-1)


KINDS = {"snapkv": _snapkv, "tova": _tova, "h2o": _h2o, "keydiff": _keydiff}


def weights(queries: Tensor, keys: Tensor, start: int, scoring: Scoring) -> Tensor:
    """Causal attention weights [B, H, n, L] of the queries [B, H, n, D] at places start .. start + n."""
    places = torch.arange(keys.shape[2], device=keys.device)
    rows = torch.arange(start, start + queries.shape[2], device=keys.device)
    return torch.softmax(scoring.scores(queries, keys).masked_fill(places > rows[:, None], -torch.inf), -1)


def exact(x: Tensor) -> Tensor:
    """States in float32, or in float64 where they come so: halves are too coarse to rank keys by."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
