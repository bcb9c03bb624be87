"""How well a model predicts a text, and how near one way to read it comes to another: token by token."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike

from ..errors import BadSetting, BadText
from ..seam.vocabulary import next_tokens
from .paired import perplexity_change, perplexity_of

if TYPE_CHECKING:
    from ..models import Model

# Parts of a window by position.
BINS = 16
# Tokens in a row that form one unit of an interval inside a bin.
STRETCH = 16


@dataclass(frozen=True)
class Quality:
    """Perplexity of a text under the applied method.

    `losses` [windows, window - 1] nats per target token; `perplexity` exp of their mean; `low`, `high` its 95%
    interval over `units` blocks of this text, each a `unit` (None with fewer than 8): how even the text is, not what
    another text would give.
    """

    losses: np.ndarray
    perplexity: float
    low: float | None
    high: float | None
    units: int
    unit: str = ""


def perplexity(model: "Model", token_ids: Any, window: int, progress: Callable[[float], None] | None = None) -> Quality:
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
    change = perplexity_of(losses)
    return Quality(losses, math.exp(losses.mean()), change.low, change.high, change.units, change.unit)


@torch.no_grad()
def token_losses(model: "Model", ids: torch.Tensor) -> np.ndarray:
    """Nats per target token, float32 [B, T - 1], for windows of tokens [B, T]."""
    ids = ids.to(model.device)
    return next_tokens(model.lm, ids).losses(model.lm, ids[:, 1:]).cpu().numpy()


def position_bins(losses: ArrayLike, bins: int = 16) -> pd.DataFrame:
    """Perplexity by position in the window: losses [windows, positions] in nats -> `bin first last n perplexity`.

    `first` inclusive, `last` exclusive: columns of `losses`. Equal widths of `positions // bins`; the positions that
    remain are dropped and counted in `.attrs["dropped"]`. `n` tokens are in a bin. Errors: BadSetting.
    """
    losses = np.atleast_2d(np.asarray(losses, dtype=np.float64))
    if losses.ndim != 2 or losses.size == 0:
        raise BadSetting(f"Losses are a table of windows and positions, and a shape of {losses.shape} was given.")
    positions = losses.shape[1]
    if not 1 <= bins <= positions:
        raise BadSetting(f"{positions} positions cannot be put into {bins} bins: choose between 1 and {positions}.")
    width = positions // bins
    parts = losses[:, : bins * width].reshape(len(losses), bins, width)
    first = np.arange(bins) * width
    table = pd.DataFrame({"bin": range(bins), "first": first, "last": first + width, "n": len(losses) * width})
    table["perplexity"] = np.exp(parts.mean((0, 2)))
    table.attrs["dropped"] = positions - bins * width
    return table


def position_changes(losses: np.ndarray, dense: np.ndarray, documents: np.ndarray | None = None) -> pd.DataFrame:
    """`position_bins` of losses with `perplexity_dense` and the paired change of each bin against the dense losses:
    `difference low high lower upper`, NaN where there are too few units for a limit; `.attrs["unit"]` names them."""
    table = position_bins(losses, min(BINS, losses.shape[1]))
    table["perplexity_dense"] = position_bins(dense, len(table))["perplexity"]
    spans = zip(table["first"], table["last"], strict=True)
    changes = [perplexity_change(losses[:, a:b], dense[:, a:b], documents, STRETCH) for a, b in spans]
    for name in ("difference", "low", "high", "lower", "upper"):
        attribute = "change" if name == "difference" else name
        table[name] = np.array([getattr(change, attribute) for change in changes], dtype=float)
    table.attrs["unit"] = changes[0].unit
    return table


def records(table: pd.DataFrame) -> list[dict]:
    """The rows of a table as JSON takes them: None where a number is missing."""
    return table.astype(object).where(table.notna(), None).to_dict("records")


def divergence(reference: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """KL(reference || logits) in nats per row, [..., V] -> [...]: 0 where both predict the same, never below.

    Computed from log-probabilities in float32, or in float64 where one of them is; a constant added to the logits
    changes nothing.
    """
    kind = torch.float64 if torch.float64 in (reference.dtype, logits.dtype) else torch.float32
    log_p, log_q = F.log_softmax(reference.to(kind), -1), F.log_softmax(logits.to(kind), -1)
    # What has no probability costs nothing.
    gap = (log_p - log_q).masked_fill_(log_p == -math.inf, 0.0)
    return gap.mul_(log_p.exp_()).sum(-1).clamp(min=0.0)


def same_top1(reference: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """Whether both hold the same token for the most likely one: logits [..., V] -> bool [...]."""
    # As argmax, which takes three times as long.
    return reference.max(-1).indices == logits.max(-1).indices


def bits_per_byte(losses: ArrayLike, count: int) -> float:
    """Losses in nats of the tokens that make up `count` bytes of UTF-8 text, in bits for each byte."""
    if count < 1:
        raise BadSetting(f"Bits per byte need at least one byte of text, and {count} were given.")
    return float(np.asarray(losses, dtype=np.float64).sum() / math.log(2) / count)
