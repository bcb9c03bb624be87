"""The soft gate of Focus: how the affinity of two tokens' groups acts on their attention score (definitions 2.1).

Pure functions. They act on distant pairs only; the caller leaves pairs inside the local window as they are.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import BadSetting

GATES = ("literal", "centred", "log")


def group_affinity(queries: Tensor, keys: Tensor) -> Tensor:
    """g_i . g_j for assignments [..., n, K] and [..., T, K] -> [..., n, T], from 0 (no shared group) to 1."""
    return queries @ keys.transpose(-1, -2)


def gate_logits(
    scores: Tensor, affinity: Tensor, form: str = "log", sharpness: float = 20.0, offset: float = 0.25
) -> Tensor:
    """Gated attention scores of distant pairs; `scores` are scaled (and softcapped), both broadcast to one shape.

    `literal` (Focus, equation 2): s * sigmoid(lambda a), which stays in [s/2, s]: a temperature per pair. `centred`: s
    * sigmoid(lambda (a - b)), which can reach 0, a weight of e^0. `log`: s + logsigmoid(lambda (a - b)), which prunes;
    its limit for large lambda is the hard mask 1[a > b].
    """
    if form == "literal":
        return scores * torch.sigmoid(sharpness * affinity)
    if form == "centred":
        return scores * torch.sigmoid(sharpness * (affinity - offset))
    assert form == "log", f"settings allow {GATES}"
    return scores + F.logsigmoid(sharpness * (affinity - offset))


def top_groups(groups: Tensor, top: int) -> Tensor:
    """Hard membership: True at the `top` largest entries of each row of groups [..., K] -> bool [..., K]."""
    if not 1 <= top <= groups.shape[-1]:
        raise BadSetting(f"Each token can be in 1 to {groups.shape[-1]} groups here, and {top} were asked for.")
    chosen = torch.zeros_like(groups, dtype=torch.bool)
    return chosen.scatter_(-1, groups.topk(top, -1).indices, True)


def straight_through(groups: Tensor, top: int) -> Tensor:
    """Hard multi-hot membership forward, the soft assignment's gradient backward; groups [..., K] -> same shape."""
    return top_groups(groups.detach(), top).to(groups.dtype) + groups - groups.detach()
