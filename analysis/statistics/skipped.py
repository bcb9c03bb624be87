"""What skip softmax leaves out at every threshold (BLASST, arXiv 2512.12087), and the scale that leaves out a share."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..kernels.blocks import rises
from ..kernels.pool import each
from .states import attention_states

if TYPE_CHECKING:
    from ..models import Model

# Last queries of a text, each taken as a token after the prompt.
DECODED = 32
# Shares that say something of the curve: beyond them it turns.
LOW, HIGH = 0.1, 0.9
PHASES = ("prefill", "decode")


@torch.no_grad()
def rises_of(model: "Model", ids: np.ndarray, layers: list[int], block: int) -> dict[str, np.ndarray]:
    """phase -> the rise of every visible block of some layers, all heads, for one window of tokens [T]: float32 [n].

    A threshold lambda leaves out the blocks whose rise is at most log(lambda), as a serving kernel does it, which makes
    no exception for the diagonal. Of a prompt a block has `block` queries, of a token after it one.
    """
    rises_by_phase: dict[str, list] = {phase: [] for phase in PHASES}
    length = len(ids)
    for states in attention_states(model, ids, layers).values():

        def one(head: int, states: Any = states) -> None:
            for start in range(0, length, block):
                scores = states.scores(head, start, min(start + block, length))
                rises_by_phase["prefill"].append(rises(scores, block))
            last = states.scores(head, max(0, length - DECODED), length)
            rises_by_phase["decode"].append(rises(last[:, None], block).flatten())

        each(one, range(len(states.query)))
    return {phase: torch.cat(parts).cpu().numpy() for phase, parts in rises_by_phase.items()}


def skipped(rises: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """The share of the blocks that each threshold lambda leaves out, [n]."""
    return (rises[:, None] <= np.log(thresholds)).mean(0)


def fit_scale(
    scales: np.ndarray, shares: np.ndarray, inside: tuple[float, float] = (LOW, HIGH), enough: int = 3
) -> tuple[float, float] | None:
    """(a, b) of scale = a exp(b share), where lambda = scale / T, by least squares on log(scale) over the points whose
    share lies `inside`; None for fewer than `enough` of them, or a curve that does not rise."""
    used = (shares >= inside[0]) & (shares <= inside[1])
    if used.sum() < enough or np.ptp(shares[used]) == 0:
        return None
    b, log_a = np.polyfit(shares[used], np.log(scales[used]), 1)
    return (float(np.exp(log_a)), float(b)) if b > 0 else None
