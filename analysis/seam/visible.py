"""What a model itself lets its queries read: its mask, what its own indexer chose, and the learned sink of its heads.

A mask is what may be read. Methods take their keys from it, and statistics are of the keys in it.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..kernels.pool import on_host
from .entries import Entries


@dataclass(frozen=True)
class Visible:
    """What one call of a layer may read.

    `mask` bool [B, 1 or H, n, Tk], None: causal. `bias` [B, 1 or H, n, Tk] is added to the scores where a model has
    numbers of its own in its mask. `sinks` [H]: a logit of each head in every softmax that belongs to no token.
    `chosen`: its own indexer left keys out, so a query may not see itself. `entries`: compressed ones beside tokens.
    """

    mask: Tensor | None = None
    bias: Tensor | None = None
    sinks: Tensor | None = None
    chosen: bool = False
    entries: Entries | None = None


def visible_to(module: Any, query: Tensor, key: Tensor, mask: Tensor | None, arguments: dict[str, Any]) -> Visible:
    """From what a model hands to its attention: query [B, H, n, D], key [B, G, Tk, D], and the keyword arguments.

    `position_bias` [B, H, n, Tk] is added to the scores (Inkling's relative positions), as are numbers in a mask.

    Models with an indexer fold what it chose into their mask only for implementations named `eager` and `sdpa`; else it
    comes as `indices` int [B, n, k], places in the future among them, or `block_indices` int [B, index heads, n,
    blocks], -1 where there is none.
    """
    bias = arguments.get("position_bias")
    if mask is not None and mask.dtype != torch.bool:
        added, mask = mask, is_visible(mask)
        if on_host(torch.where(mask, added, 0.0).any(), "numbers in the mask"):
            bias = added if bias is None else bias + added
    indices, blocks = arguments.get("indices"), arguments.get("block_indices")
    if indices is None and blocks is None:
        return Visible(mask, bias, arguments.get("s_aux"))
    length, total = query.shape[2], key.shape[2]
    if blocks is None:
        assert indices is not None
        chosen = indices.new_zeros((len(query), length, total), dtype=torch.bool)
        chosen = chosen.scatter(-1, indices.long(), True)[:, None]
    else:
        size = module.indexer.block_size
        count = -(-total // size)
        # One column more than there are blocks takes the -1.
        chosen = blocks.new_zeros((*blocks.shape[:3], count + 1), dtype=torch.bool)
        chosen = chosen.scatter(-1, blocks.long().masked_fill(blocks < 0, count), True)
        chosen = chosen[..., :count].repeat_interleave(size, -1)[..., :total]
        chosen = chosen.repeat_interleave(query.shape[1] // chosen.shape[1], 1)
    if mask is None:
        places = torch.arange(total, device=query.device)
        mask = (places <= places[total - length :, None])[None, None]
    return Visible(mask & chosen, bias, arguments.get("s_aux"), chosen=True)


def is_visible(mask: Tensor) -> Tensor:
    """bool of a mask that is added to scores: what lies near the lowest number of its type hides a key."""
    return mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
