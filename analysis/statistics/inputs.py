"""Texts as the statistics take them: a batch of tokens, what of it is real, whether it can be read at all; what enters
each attention layer, and one pass through the layers."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import BadSetting, BadText, TooLarge
from ..models.weights import free_bytes
from ..runs.memory import of_token
from ..seam.layers import attention_modules

if TYPE_CHECKING:
    from ..models import Model


@torch.no_grad()
def attention_inputs(
    model: "Model",
    windows: list[np.ndarray],
    progress: Callable[[float], None] | None = None,
    make: Callable[[int, Tensor], Tensor] | None = None,
) -> list[torch.Tensor]:
    """The hidden states that enter each attention layer, windows of token ids [T] joined: L tensors [sum of T, d], CPU.

    `progress(fraction)` is called before each window. `make(layer, hidden)`: what is kept of a window's states
    [T, d] in their place, such as fewer dimensions.
    """
    states_of: list[list[torch.Tensor]] = [[] for _ in range(model.num_layers)]

    def keep(layer: int, module: nn.Module, args: tuple, kwargs: dict) -> None:
        hidden = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]
        states = hidden[0].float().cpu()
        states_of[layer].append(states if make is None else make(layer, states))

    for index, ids in enumerate(windows):
        if progress:
            # Others may use the model meanwhile, so no hook is on it now.
            progress(index / len(windows))
        with ExitStack() as hooks:
            for layer, module in enumerate(attention_modules(model.lm)):
                hooks.enter_context(module.register_forward_pre_hook(partial(keep, layer), with_kwargs=True))
            forward(model, ids)
    return [torch.cat(parts) for parts in states_of]


@torch.no_grad()
def forward(model: "Model", ids: np.ndarray | torch.Tensor) -> None:
    """Run one window of tokens [T] through the layers, without the vocabulary's logits and without a KV cache."""
    batch = torch.as_tensor(ids, device=model.device)[None]
    model.lm.base_model(batch, use_cache=False)


def batch(model: "Model", token_ids: Any, attention_mask: Any = None) -> tuple[torch.Tensor, torch.Tensor]:
    """(ids int64 [B, T], real bool [B, T]) on the CPU, from tokens [T] or [B, T] and a mask that is 0 at padding.

    Errors: BadText for no tokens or strange ones, BadSetting for a mask of another shape.
    """
    ids = torch.as_tensor(np.asarray(token_ids) if not isinstance(token_ids, torch.Tensor) else token_ids).cpu()
    if ids.numel() == 0 or ids.dim() not in (1, 2) or ids.is_floating_point():
        raise BadText(f"Tokens are whole numbers, [T] or [B, T], and a shape of {tuple(ids.shape)} was given.")
    ids = ids.long().reshape(-1, ids.shape[-1])
    vocabulary = model.lm.config.get_text_config().vocab_size
    if int(ids.min()) < 0 or int(ids.max()) >= vocabulary:
        lowest, highest = int(ids.min()), int(ids.max())
        raise BadText(f"The tokens run from {lowest} to {highest} and the model knows 0 to {vocabulary - 1}.")
    real = torch.ones_like(ids, dtype=torch.bool)
    if attention_mask is not None:
        real = torch.as_tensor(np.asarray(torch.as_tensor(attention_mask).cpu())).bool()
        if real.shape != ids.shape:
            raise BadSetting(f"The mask has the shape {tuple(real.shape)} and the tokens have {tuple(ids.shape)}.")
        if not bool(real.any(1).all()):
            raise BadText("A text of the batch is nothing but padding: leave it out.")
    return ids, real


def check_head(lm: "Model", layer: int, head: int) -> int:
    """The place of a layer among those of softmax attention, from the model's own number of it. Errors: BadSetting for
    a layer or head that the model does not have."""
    if layer in lm.other_layers:
        listed = ", ".join(map(str, lm.layer_numbers))
        raise BadSetting(
            f"Layer {layer} of this model is {lm.other_layers[layer]} and has no heads that can be looked at: choose "
            f"one of layers {listed}."
        )
    for name, value, count in (("Layers", layer, 1 + lm.layer_numbers[-1]), ("Heads", head, lm.num_heads)):
        if not 0 <= value < count:
            raise BadSetting(f"{name} run from 0 to {count - 1}, and {value} was asked for.")
    return lm.layer_numbers.index(layer)


def masks(config: Any, padded: bool) -> int:
    """How many masks [T, T] of one byte transformers makes for a pass: one for each kind of layer that the plain causal
    rule does not describe, which are layers with a sliding window, and of padded texts all."""
    sliding = getattr(config, "sliding_window", None)
    kinds = set(getattr(config, "layer_types", None) or ["sliding_attention" if sliding else "full_attention"])
    return len(kinds if padded else kinds - {"full_attention"})


def check_room(model: "Model", ids: torch.Tensor, padded: bool = False) -> None:
    """Refuse, before anything is computed, more tokens than the model reads at once or than fit memory.

    Errors: TooLarge, which names what fits.
    """
    texts, length = ids.shape
    if length > model.max_positions:
        raise TooLarge(
            f"The text has {length:,} tokens and {model.name} reads {model.max_positions:,} at once: give its first "
            f"{model.max_positions:,}, or read it window by window."
        )
    # of each text: length * (token_bytes + pairs * length) bytes
    token_bytes = of_token(model.dtype.itemsize, model.width, model.inner)
    pairs, free = masks(model.lm.config.get_text_config(), padded), free_bytes(model.device)
    need, room = length * (token_bytes + pairs * length), 0.9 * free / texts
    if need > room:
        limit = 2 * room / (token_bytes + (token_bytes**2 + 4 * pairs * room) ** 0.5)
        raise TooLarge(
            f"{texts * length:,} tokens need about {texts * need / 1e9:,.1f} GB and {free / 1e9:,.1f} GB are free: "
            f"give at most {int(limit):,} tokens."
        )


def earlier(ids: torch.Tensor, real: torch.Tensor) -> np.ndarray:
    """int64 [B, T]: where each real token last stood before in its text, -1 where it did not."""
    previous = np.full(ids.shape, -1, dtype=np.int64)
    for row, (tokens, keep) in enumerate(zip(ids.tolist(), real.tolist(), strict=True)):
        last: dict[int, int] = {}
        for place, token in enumerate(tokens):
            if keep[place]:
                previous[row, place] = last.get(token, -1)
                last[token] = place
    return previous
