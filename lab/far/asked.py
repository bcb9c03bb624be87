"""A term of the loss that asks named heads for a pattern: the token before, or what followed an earlier copy.

The circuit that forms by itself on random tokens that repeat need not be the one of the literature (Elhage et al. 2021,
Olsson et al. 2022): heads may read the third token after the earlier copy, if heads before them carry tokens three
places on. Both predict alike; the one of the literature is what people look for on a page about heads. Asked for during
a few hundred steps, it stays.
"""

from typing import NamedTuple

import torch
from transformers import PreTrainedModel
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

PREVIOUS, AFTER = "the token before", "what followed the earlier copy"


class Asked(NamedTuple):
    """A head of a layer and what it shall `reads`: PREVIOUS or AFTER."""

    layer: int
    head: int
    reads: str


def asked_loss(
    model: PreTrainedModel, hidden: tuple[torch.Tensor, ...], periods: list[int], heads: tuple[Asked, ...]
) -> torch.Tensor:
    """Mean over heads of the mean -log weight on the key that a head shall read; a Llama without biases.

    hidden: the input of each layer [B, T, C]; periods: after how many tokens each sequence begins again. The token
    before counts from the second position on, what followed the earlier copy from the second copy on.
    """
    parts = []
    for one in heads:
        weights = log_weights(model, hidden[one.layer], one.layer, one.head)
        back = [1 if one.reads == PREVIOUS else period - 1 for period in periods]
        first = [1 if one.reads == PREVIOUS else period for period in periods]
        rows = [row.diagonal(-far)[begin - far :] for row, far, begin in zip(weights, back, first, strict=True)]
        parts.append(-torch.cat(rows).mean())
    return torch.stack(parts).mean()


def log_weights(model: PreTrainedModel, hidden: torch.Tensor, layer: int, head: int) -> torch.Tensor:
    """Logarithm of a head's weights [B, T, T] from the input of its layer [B, T, C], float32; minus infinity ahead."""
    block = model.model.layers[layer]
    attention, x = block.self_attn, block.input_layernorm(hidden)
    size, shared = attention.head_dim, attention.num_key_value_groups
    q = attention.q_proj(x).unflatten(-1, (-1, size)).transpose(1, 2)[:, head, None]
    k = attention.k_proj(x).unflatten(-1, (-1, size)).transpose(1, 2)[:, head // shared, None]
    q, k = apply_rotary_pos_emb(q, k, *model.model.rotary_emb(x, torch.arange(x.shape[1], device=x.device)[None]))
    scores = (q @ k.transpose(-1, -2))[:, 0].float() * attention.scaling
    ahead = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    return torch.log_softmax(scores.masked_fill(ahead, -torch.inf), -1)
