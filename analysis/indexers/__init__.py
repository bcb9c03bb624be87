"""Indexers: the light scores by which the sparse models of 2025 and 2026 choose what a layer reads, as their classes in
transformers compute them."""

import torch
from torch import Tensor

from ..errors import BadSetting
from .base import Indexer, Inputs, State, Tables, whole_scores
from .blocks import MoBA, Seer
from .tokens import DSA, GLM, M3, QSA, LowRank

__all__ = ["INDEXERS", "indexer_scores"]

INDEXERS: dict[str, type[Indexer]] = {cls.kind: cls for cls in (DSA, GLM, M3, QSA, Seer, MoBA, LowRank)}
# Those that transformers has a class of.
OF_HIDDEN = ("dsa", "glm", "m3", "qsa")


@torch.no_grad()
def indexer_scores(
    kind: str,
    state: State,
    hidden: Tensor,
    cos: Tensor,
    sin: Tensor,
    query_input: Tensor | None = None,
    block: int | None = None,
    eps: float = 1e-6,
) -> Tensor:
    """What the indexer `kind` (dsa, glm, m3, qsa) hands to its choice of keys, -inf in the future: [T, T] of dsa and
    glm, [groups, T, T] of m3 before the maximum over blocks, [T, groups of `block` tokens] of qsa, where a group is
    -inf until its last token is at or before the query and an incomplete last group is left out.

    `state` has the names of its class in transformers, `hidden` [T, d] enters the layer, `query_input` [T, r] makes
    the queries where that is something else (the query residual of DeepSeek); `cos` and `sin` [T, rotated sizes].
    Computed in float32, or in float64 where `hidden` is. Errors: BadSetting.
    """
    if kind not in OF_HIDDEN:
        raise BadSetting(f"There is no indexer {str(kind)[:40]!r}; there are: {', '.join(OF_HIDDEN)}.")
    if hidden.ndim != 2 or cos.shape != sin.shape or len(cos) != len(hidden):
        shapes = [list(x.shape) for x in (hidden, cos, sin)]
        raise BadSetting(f"Hidden states [T, d] and tables [T, R] of the same tokens are needed, and are {shapes}.")
    if kind == "qsa" and not block:
        raise BadSetting("qsa scores groups of tokens: say how many are one, its compress_ratio, as block.")
    indexer = INDEXERS[kind](state, block if kind == "qsa" and block else 1, eps)
    if kind == "m3":
        # Its class cuts longer tables to the sizes of its keys.
        cos, sin = (table[:, : len(state["k_proj.weight"])] for table in (cos, sin))
    return whole_scores(indexer, Inputs(hidden, query_input), Tables(cos, sin))
