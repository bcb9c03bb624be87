"""`eviction_scores`: what a key of a prompt is worth to the rules that are compared most; larger scores stay."""

import torch
from torch import Tensor

from ..errors import BadSetting
from ..kernels.scoring import Scoring, at_least_float32
from .evicting import evict
from .h2o import h2o_scores
from .keydiff import keydiff_scores
from .snapkv import snapkv_scores
from .tova import tova_scores

__all__ = ["KINDS", "evict", "eviction_scores"]

KINDS = ("snapkv", "tova", "h2o", "keydiff")


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
      budget belongs to the most recent keys; `analysis.methods.h2o.recent_half` gives it to them.
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
    queries, keys, scoring = at_least_float32(queries), at_least_float32(keys), scoring or Scoring.plain(queries)
    if kind == "snapkv":
        return snapkv_scores(queries, keys, window, scoring)
    if kind == "tova":
        return tova_scores(queries, keys, scoring)
    if kind == "h2o":
        return h2o_scores(queries, keys, scoring)
    return keydiff_scores(keys)
