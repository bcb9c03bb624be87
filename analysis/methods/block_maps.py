"""`block_map`: which blocks of a prompt are worth reading, by the rules of four methods."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import BadSetting
from ..kernels.blocks import BLOCK
from ..kernels.scoring import Scoring, at_least_float32
from .flex_prefill import flex_prefill
from .skip_softmax import skip_softmax
from .vertical_slash import vertical_slash
from .xattention import xattention

KINDS: dict[str, Callable[..., Tensor]] = {
    "skip_softmax": skip_softmax,
    "vertical_slash": vertical_slash,
    "flex_prefill": flex_prefill,
    "xattention": xattention,
}


@torch.no_grad()
def block_map(
    kind: str, q: Tensor, k: Tensor, block: int = BLOCK, scoring: Scoring | None = None, **settings: Any
) -> Tensor:
    """Which blocks each head keeps: bool [B, H, n, n], lower triangular, the diagonal always kept.

    A block is `block` queries by `block` keys, n = ceil(T / block). q [B, H, T, D], k [B, G, T, D], rotated; `scoring`
    how the layer makes scores of them, 1/sqrt(D) unless given; where an estimate is a mean of products, a soft cap is
    put on the mean. Kinds and their settings: `skip_softmax(scale)`, `vertical_slash(vertical, slash, queries)`,
    `flex_prefill(gamma, tau)`, `xattention(stride, threshold)`: see the functions of these names. All of them look at
    the end of what they are given, or at whole blocks of queries: they are for a prompt that is there as a whole, and a
    later token changes what an earlier block reads. Errors: BadSetting for another kind or setting.
    """
    if kind not in KINDS:
        raise BadSetting(f"There is no block map {kind!r}; there are: {', '.join(KINDS)}.")
    if q.shape[1] % k.shape[1] or q.shape[2:] != k.shape[2:]:
        raise BadSetting(
            f"Queries {list(q.shape)} and keys {list(k.shape)} do not belong together: [B, H, T, D] and [B, G, T, D] "
            "are needed, G a divisor of H."
        )
    names = list(inspect.signature(KINDS[kind]).parameters)[4:]  # after the queries, keys, block and scoring
    if strange := sorted(set(settings) - set(names)):
        raise BadSetting(f"{kind} has no setting {strange[0]!r}; it has: {', '.join(names)}.")
    blocks = KINDS[kind](at_least_float32(q), at_least_float32(k), block, scoring or Scoring.plain(q), **settings)
    return blocks.tril() | torch.eye(blocks.shape[-1], dtype=torch.bool, device=q.device)
