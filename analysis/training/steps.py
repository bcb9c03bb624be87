"""What the trainings share: the rate of a step, the gradients of its windows, and copies of a model to be trained."""

import copy
import math
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..seam.vocabulary import next_tokens

if TYPE_CHECKING:
    from ..models import Model


def warmed(step: int, steps: int, warm_up: int, floor: float = 0.05) -> float:
    """Multiple of a peak rate: linear warm-up, then cosine to `floor`."""
    if step < warm_up:
        return (step + 1) / warm_up
    done = (step - warm_up) / max(1, steps - warm_up)
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * done))


def window_loss(model: "Model", window: np.ndarray) -> Tensor:
    """Nats per token of a window of token ids [T]; the first is not predicted."""
    batch = torch.as_tensor(window, device=model.device)[None].long()
    return next_tokens(model.lm, batch).losses(model.lm, batch[:, 1:]).mean()


def add_gradients(model: "Model", windows: Iterable[np.ndarray], count: int) -> float:
    """The mean loss of `count` windows, its gradient added window by window, so that memory is that of one."""
    total = 0.0
    for window in windows:
        loss = window_loss(model, window) / count
        loss.backward()
        total += loss.item()
    return total


def copy_of(model: "Model") -> "Model":
    """The model with weights of its own in float32, all of them to be trained."""
    return replace(model, lm=copy.deepcopy(model.lm).float().requires_grad_(True))
