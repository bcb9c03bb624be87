"""The rules of eviction and of block-sparse prompts as functions of queries and keys, without a model."""

from typing import Any

import torch
from torch import Tensor

from ..declaration import fields_of
from ..errors import BadSetting
from ..kernels.blocks import BLOCK
from ..kernels.scoring import Scoring, at_least_float32
from ..seam.calls import Prompt
from .ada_kv import RULES
from .blockwise import Blockwise
from .flex_prefill import FlexPrefill
from .skip_softmax import SkipSoftmax
from .vertical_slash import VerticalSlash
from .xattention import XAttention

KINDS = ("snapkv", "tova", "h2o", "keydiff")
BLOCK_RULES: dict[str, type[Blockwise]] = {
    "skip_softmax": SkipSoftmax,
    "vertical_slash": VerticalSlash,
    "flex_prefill": FlexPrefill,
    "xattention": XAttention,
}


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
    rule = RULES[kind]()
    rule.window = window
    return rule.key_scores(_prompt(queries, keys, values, scoring))


@torch.no_grad()
def block_map(
    kind: str, q: Tensor, k: Tensor, block: int = BLOCK, scoring: Scoring | None = None, **settings: Any
) -> Tensor:
    """Which blocks each head keeps: bool [B, H, n, n], lower triangular, the diagonal always kept.

    A block is `block` queries by `block` keys, n = ceil(T / block). q [B, H, T, D], k [B, G, T, D], rotated; `scoring`
    how the layer makes scores of them, 1/sqrt(D) unless given; where an estimate is a mean of products, a soft cap is
    put on the mean. The kinds and their settings are the methods of these names. All of them look at the end of what
    they are given, or at whole blocks of queries: they are for a prompt that is there as a whole, and a later token
    changes what an earlier block reads. Errors: BadSetting for another kind or setting.
    """
    if kind not in BLOCK_RULES:
        raise BadSetting(f"There is no block map {kind!r}; there are: {', '.join(BLOCK_RULES)}.")
    names = [declared.name for declared in fields_of(BLOCK_RULES[kind]) if declared.name != "block"]
    if strange := sorted(set(settings) - set(names)):
        raise BadSetting(f"{kind} has no setting {strange[0]!r}; it has: {', '.join(names)}.")
    rule = BLOCK_RULES[kind](**settings)
    # A direct caller may have smaller blocks than the sliders of a page.
    rule.block = block
    prompt = _prompt(q, k, k, scoring)
    return rule.block_map(prompt.query, prompt.key, prompt.scoring)


def _prompt(queries: Tensor, keys: Tensor, values: Tensor, scoring: Scoring | None) -> Prompt:
    """States without a layer, as a method sees those of one. Errors: BadSetting for shapes that do not fit."""
    fits = queries.shape[0] == keys.shape[0] and queries.shape[2:] == keys.shape[2:] and keys.shape == values.shape
    if not fits or queries.shape[1] % keys.shape[1]:
        raise BadSetting(
            f"Queries {list(queries.shape)}, keys {list(keys.shape)} and values {list(values.shape)} do not belong "
            "together: [B, H, L, D] and twice [B, G, L, D] are needed, G a divisor of H."
        )
    first = torch.zeros(len(queries), dtype=torch.long, device=queries.device)
    exact = at_least_float32(queries), at_least_float32(keys)
    return Prompt(0, *exact, values, first, None, None, scoring or Scoring.plain(queries))
