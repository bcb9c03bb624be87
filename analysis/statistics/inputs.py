"""What enters each attention layer, and one pass through the layers."""

import numpy as np
import torch

from analysis.models import attention_modules


@torch.no_grad()
def attention_inputs(model, windows: list[np.ndarray], progress=None) -> list[torch.Tensor]:
    """The hidden states that enter each attention layer, windows of token ids [T] joined: L tensors [sum of T, d], CPU.

    `progress(fraction)` is called before each window.
    """
    kept: list[list[torch.Tensor]] = [[] for _ in range(model.num_layers)]

    def keep(module, args, kwargs):
        hidden = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]
        kept[module.layer_idx].append(hidden[0].float().cpu())

    for index, ids in enumerate(windows):
        if progress:
            progress(index / len(windows))  # others may use the model meanwhile, so no hook is on it now
        handles = [m.register_forward_pre_hook(keep, with_kwargs=True) for m in attention_modules(model.lm)]
        try:
            forward(model, ids)
        finally:
            for handle in handles:
                handle.remove()
    return [torch.cat(parts) for parts in kept]


@torch.no_grad()
def forward(model, ids: np.ndarray) -> None:
    """Run one window of tokens [T] through the layers, without the vocabulary's logits and without a KV cache."""
    batch = torch.as_tensor(ids, device=model.device)[None]
    model.lm.base_model(batch, use_cache=False)
