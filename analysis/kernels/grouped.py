"""`grouped_attention`: the one name behind which the backends stand."""

import math

import torch
from torch import Tensor

from analysis.errors import BadSetting
from analysis.kernels import cpu, cuda, reference
from analysis.kernels.members import MOST_GROUPS
from analysis.kernels.plans import BACKENDS, plan

__all__ = ["BACKENDS", "grouped_attention"]

ON_CPU = {"groups": cpu.groups, "lowest shared group": cpu.groups, "masked": cpu.masked, "causal": cpu.causal}


def grouped_attention(
    q: Tensor, k: Tensor, v: Tensor, members: Tensor, window: int, scale: float | None = None, backend: str = "auto"
) -> tuple[Tensor, Tensor]:
    """Exact attention to the tokens before that share a group or lie less than `window` tokens back.

    q [B, H, T, D], k and v [B, G, T, D] with G a divisor of H; members bool [B, T, K], or [T, K] for all texts alike:
    a token may be in no group, one or several, groups may be empty. `scale` is 1/sqrt(D) unless given. Runs what
    `plan` says. Returns (out [B, H, T, D], lse [B, H, T] float32, the logsumexp of the scaled scores).
    `backend`: auto, reference (the definition, differentiable, any precision, its lse in float64 for float64), torch,
    flash_attn. Errors: BadSetting for wrong shapes and types, values that are no numbers, and for what the backend
    cannot do. Source: Focus, appendix D; several groups per token: see `cpu`.
    """
    members, scale = _checked(q, k, v, members, window, scale)
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))  # the kernels read whole rows
    chosen = plan(members, window, q.shape[1], q.shape[-1], q.dtype, q.device, backend)
    if chosen.backend == "reference":
        found = reference.attention(q, k, v, members, window, scale)
    elif torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v)):
        raise BadSetting(
            f"The logsumexp of the backend {chosen.backend} has no gradient: use the backend reference, or "
            "torch.no_grad() where no gradient is needed."
        )
    elif q.device.type == "cpu":
        found = ON_CPU[chosen.kernel](q, k, v, members, window, scale)
    elif chosen.kernel in ("masked", "causal"):
        found = cuda.dense(q, k, v, members, window, scale, chosen.kernel == "causal")
    else:
        found = cuda.grouped(q, k, v, members, window, scale, chosen.backend)
    if not bool(found[1].isfinite().all()):
        _explain(q, k)
    return found


def _checked(q, k, v, members, window, scale) -> tuple[Tensor, float]:
    """Members [B, T, K] on q's device, and the scale. Refuses what does not fit together, with the shapes."""
    shapes = f"q {list(q.shape)}, k {list(k.shape)}, v {list(v.shape)}"
    if not (q.dim() == k.dim() == v.dim() == 4 and k.shape == v.shape and q.numel() and k.numel()):
        raise BadSetting(f"Attention takes q [B, H, T, D] and k, v [B, G, T, D], none empty, and got {shapes}.")
    if (q.shape[0], *q.shape[2:]) != (k.shape[0], *k.shape[2:]) or q.shape[1] % k.shape[1]:
        raise BadSetting(f"B, T and D of q, k and v must agree and G divide H, and they are {shapes}.")
    if not q.dtype.is_floating_point or not q.dtype == k.dtype == v.dtype:
        raise BadSetting(f"q, k and v must have one floating type, and have {q.dtype}, {k.dtype} and {v.dtype}.")
    wanted = (q.shape[0], q.shape[2])
    if members.dtype != torch.bool or members.dim() not in (2, 3) or members.shape[-2] != q.shape[2]:
        fits = False
    else:
        fits = members.dim() == 2 or members.shape[:2] == wanted
    if not fits or not 1 <= members.shape[-1] <= MOST_GROUPS:
        raise BadSetting(
            f"Members must be bool [{wanted[0]}, {wanted[1]}, K] or [{wanted[1]}, K] with K from 1 to {MOST_GROUPS}, "
            f"and are {str(members.dtype)[6:]} {list(members.shape)}."
        )
    if isinstance(window, bool) or not isinstance(window, int) or window < 1:
        raise BadSetting(f"The window is {window!r} and must be a whole number from 1 on: a token reads itself.")
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if not 0 < scale < math.inf:
        raise BadSetting(f"The scale is {scale!r} and must be above 0.")
    return members.expand(q.shape[0], -1, -1).to(q.device), scale


def _explain(q: Tensor, k: Tensor) -> None:
    """The logsumexp is no number somewhere: say which input is to blame."""
    for name, x in (("q", q), ("k", k)):
        if bad := int((~x.isfinite()).sum()):
            raise BadSetting(
                f"{bad:,} of the {x.numel():,} values of {name} are NaN or infinite: look at what computed them."
            )
    raise BadSetting(f"The scores overflow {str(q.dtype)[6:]}: use a smaller scale, or a wider type.")
