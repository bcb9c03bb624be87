"""What Sinkhorn does to given scores: the groups' sizes after so many iterations at a temperature. For sliders."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from analysis.groups.dominance import confidence, largest_share
from analysis.groups.sinkhorn import sinkhorn


@dataclass(frozen=True)
class Balance:
    """Per layer [L]: `share` of the tokens whose best group is the largest one; `mass` of the assignment in the group
    with the most (1/K when converged); mean `confidence`."""

    share: list[float]
    mass: list[float]
    confidence: list[float]


@torch.no_grad()
def rebalance(scores: Tensor, temperature: float, iterations: int) -> Balance:
    """Balance scores [L, T, K] of one text anew, each layer by itself; 0 iterations are softmax. Errors: BadSetting."""
    groups = sinkhorn(scores, temperature, iterations).cpu().numpy()  # [L, T, K]
    mass = groups.mean(1).max(-1)
    share = [largest_share(layer, groups.shape[-1]) for layer in groups.argmax(-1)]
    return Balance(share, np.asarray(mass, dtype=float).tolist(), [confidence(layer) for layer in groups])
