"""Whether a step of a training fits memory, before anything is trained; and layers that are computed again on the way
back, where what all of them computed does not fit."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.checkpoint import checkpoint

from ..errors import TooLarge
from ..models.weights import free_bytes
from ..runs.memory import of_training
from ..seam.layers import decoder_layers, running

if TYPE_CHECKING:
    from ..models import Model

# Of the free memory: what a step takes before its layers are computed again, and at most.
COMFORTABLE, MOST = 0.5, 0.9


def recomputes(model: "Model", length: int, phase: int) -> bool:
    """Whether the layers of a model are to be computed again on the way back, for a step on sequences of `length`
    tokens to fit; phase 2 trains the weights too. Errors: TooLarge, which names what fits."""

    def needed(tokens: int, again: bool) -> int:
        layers = model.num_layers + len(model.other_layers)
        sizes = model.dtype.itemsize, model.width, model.inner, layers, model.vocabulary
        return of_training(tokens, *sizes, model.parameters if phase == 2 else 0, again)

    free = free_bytes(model.device)
    if needed(length, False) <= COMFORTABLE * free:
        return False
    again = decoder_layers(model.lm) is not None
    if needed(length, again) <= MOST * free:
        return again
    of_token = (needed(2 * length, again) - needed(length, again)) / length
    fits = max(0, length - int((needed(length, again) - MOST * free) / of_token))
    offer = f"sequences of at most {fits:,} tokens" if fits else "a smaller model, or train the router alone (phase 1)"
    raise TooLarge(
        f"A training step on {length:,} tokens of {model.name} needs about {needed(length, again) / 1e9:,.1f} GB and "
        f"{free / 1e9:,.1f} GB are free on {model.device}: choose {offer}."
    )


def recomputed(model: "Model", wanted: bool) -> AbstractContextManager[None]:
    """Inside, with `wanted`, every layer keeps what enters it alone, and is computed again when its gradient is taken:
    the same numbers in about a third more time."""
    layers = (decoder_layers(model.lm) or []) if wanted else []
    return running({layer: partial(_again, layer.forward) for layer in layers})


def _again(forward: Callable, *args: Any, **options: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*args, **options)
    return checkpoint(forward, *args, use_reentrant=False, **options)
