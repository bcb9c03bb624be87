"""The library's door to fitting: an indexer of one layer, from hidden states and the attention that is given."""

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from ..errors import BadSetting
from . import INDEXERS
from .base import Inputs
from .fit import FittedIndexer, Fitting, States
from .sizes import Sizes


def fit_indexer(
    kind: str,
    hidden: Tensor,
    attention: Callable[[int], Iterable[Tensor]],
    seed: int = 0,
    **sizes: Any,
) -> FittedIndexer:
    """Fit an indexer of one layer to its attention, the model frozen: dsa, glm, m3, qsa, seer by AdamW and an early
    stop on the first fifth of the documents, low_rank in closed form; moba has nothing to fit.

    `hidden` [n, T, d] of n documents; `attention(document)` yields the layer's attention [H, m, T] in blocks of m
    consecutive queries from the first on, of which some evenly spaced ones are kept, so nothing is [T, T]. `sizes`:
    the fields of `Sizes`; `kv_heads` (default H); `shuffled` for the null that learns the targets of another document;
    `states`, for seer and moba, makes a document's queries [T, H, D] and keys [T, G, D] of its hidden states, before
    their rotation for seer and after it for moba. Returns an object with `state`, `scores(hidden)` and the learning
    `curve`. Errors: BadSetting, NotFitted.
    """
    if kind not in INDEXERS:
        raise BadSetting(f"There is no indexer {str(kind)[:40]!r}; there are: {', '.join(INDEXERS)}.")
    own = {item.name for item in fields(Sizes)}
    if strange := sorted(set(sizes) - own - {"kv_heads", "shuffled", "states"}):
        raise BadSetting(f"fit_indexer has no size {strange[0]!r}; it has: {', '.join(sorted(own))}.")
    states: States | None = sizes.get("states")
    if INDEXERS[kind].reads and states is None:
        raise BadSetting(f"{kind} looks at the layer's own queries and keys: give `states`, which makes them.")
    chosen = Sizes(**{name: value for name, value in sizes.items() if name in own})
    fitting: Fitting | None = None
    for document, text in enumerate(hidden):
        queries, keys = states(text) if states else (None, None)
        inputs = Inputs(text, None, queries, keys)
        first = 0
        for block in attention(document):
            if fitting is None:
                groups, dim = (len(block), 0) if keys is None else keys.shape[1:]
                about = hidden.shape[-1], len(block), sizes.get("kv_heads", groups), dim
                fitting = Fitting(kind, *about, chosen, seed, bool(sizes.get("shuffled")))
            if first == 0:
                fitting.begin(inputs)
            fitting.take(torch.arange(first, first + block.shape[1], device=block.device), block)
            first += block.shape[1]
        if fitting is not None and first:
            fitting.end()
    if fitting is None:
        raise BadSetting("There is no document to learn from.")
    return fitting.fit(states)
