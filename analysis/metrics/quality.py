"""How well a model predicts a text: perplexity with its interval."""

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from analysis.errors import BadSetting, BadText
from analysis.metrics.intervals import UNIT, bootstrap_mean


@dataclass(frozen=True)
class Quality:
    """Perplexity of a text under the applied method.

    `losses` [windows, window - 1] nats per target token; `perplexity` exp of their mean; `low`, `high` its 95 %
    bootstrap interval over `units` units of 8 consecutive windows (None with fewer than two units).
    """

    losses: np.ndarray
    perplexity: float
    low: float | None
    high: float | None
    units: int


def perplexity(model, token_ids, window: int, progress=None) -> Quality:
    """Perplexity over non-overlapping windows of `window` tokens; the remainder of the text is dropped.

    Call it inside `apply` to measure a method. Windows are independent: each starts without context, so position p
    is predicted from p tokens. Lower is better. `progress(fraction)` is called after each window, the method applied.
    Raises BadText when the text is shorter than one window, BadSetting for a window without a target.
    """
    if window < 2:
        raise BadSetting(f"A window of {window} tokens predicts nothing: choose at least 2.")
    ids = torch.as_tensor(np.asarray(token_ids)).long().flatten()
    count = len(ids) // window
    if count == 0:
        raise BadText(
            f"The text has {len(ids):,} tokens and one window needs {window:,}: give a longer text or a shorter window."
        )
    rows = []
    for index in range(count):
        rows.append(token_losses(model, ids[index * window : (index + 1) * window][None])[0])
        if progress:
            progress((index + 1) / count)
    losses = np.stack(rows)
    interval = bootstrap_mean(losses.mean(1), unit=UNIT)
    low, high = (None if edge is None else math.exp(edge) for edge in (interval.low, interval.high))
    return Quality(losses, math.exp(losses.mean()), low, high, interval.units)


@torch.no_grad()
def token_losses(model, ids: torch.Tensor) -> np.ndarray:
    """Nats per target token, float32 [B, T - 1], for windows of tokens [B, T]."""
    ids = ids.to(model.device)
    logits = model.lm(ids, use_cache=False).logits[:, :-1].float()
    return (
        F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(len(ids), -1).cpu().numpy()
    )
