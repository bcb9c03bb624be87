"""Bytes of the KV cache that budgets leave, of every kind of layer."""

import numpy as np
from numpy.typing import ArrayLike

from ...costs import Shape, cache_bytes
from ...metrics.budgets import keys_left
from ...models import Model
from ...seam.layers import attention_modules


def held_bytes(lm: Model, shape: Shape, budgets: ArrayLike, cap: int, length: int) -> tuple[int, int]:
    """Bytes of the KV cache of a model of this shape after `length` tokens: (with all keys, the most that are left when
    each head keeps min(budget, cap) for good); `budgets` int [L, H].

    A state, an indexer's keys and the latent of MLA stay: budgets of single heads shrink none of them.
    """
    total = cache_bytes(shape, length)
    if shape.latent:
        return round(total), round(total)
    gone, kept = 0.0, np.asarray(budgets)
    readers = [layer for layer in shape.stack if layer.entries]
    for place, (layer, module) in enumerate(zip(readers, attention_modules(lm.lm), strict=True)):
        whole = layer.entries[0]
        held = whole.cached(length)
        groups = lm.num_heads // getattr(module, "num_key_value_groups", lm.num_heads // lm.num_kv_heads)
        left = keys_left(kept[[place]], cap, held, groups)  # [1, G]
        gone += whole.numbers * (held - left.mean())
    return round(total), round(total - shape.cache_bytes * gone)
