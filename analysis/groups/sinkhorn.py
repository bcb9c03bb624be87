"""Balanced soft assignment of tokens to groups: Sinkhorn in the log domain, and its causal form.

Source: Focus, section 2 and appendix B (temperature 0.1, 10 iterations). N iterations equal one softmax with a bias per
group, `softmax(scores / temperature + v)`: the bias v is all that a token learns of the text, future included. Frozen
on calibration text it gives a rule of the same form that reads no future and works for one token.
"""

import math

import torch
from torch import Tensor

from ..errors import BadSetting
from ..kernels.pool import accelerated

# Rows of a pool handled at once: bounds the working memory of `frozen_potential`.
CHUNK = 1 << 18
# Pairs of prefix and token handled at once by `prefix_sinkhorn`.
ENTRIES = 1 << 22


def sinkhorn(scores: Tensor, temperature: float = 0.1, iterations: int = 10, mask: Tensor | None = None) -> Tensor:
    """Balanced assignment of each sequence's tokens to groups (Focus, section 2), differentiable.

    Each iteration normalises over the tokens of the sequence, then over the groups, so rows sum to 1 and, once
    converged, columns to tokens / K. `iterations=0` only normalises rows. It reads the whole sequence: the future
    leaks through K numbers, and a sequence of one token gets 1/K everywhere; `assign` is the causal form.

    scores [..., T, K]; mask [..., T], True = real token (others are left out of the sum over tokens and come back
    as zeros; their scores may be anything). Returns float32 [..., T, K]. Errors: BadSetting.
    """
    scores, mask = _of_tokens(scores, mask)
    logits = _logits(scores, temperature, iterations)
    if logits.shape[-2] == 0:
        return logits.float()
    potential = logits.new_zeros(*logits.shape[:-2], 1, logits.shape[-1])  # [..., 1, K]
    # A sequence without any real token keeps all rows here, so that no -inf enters; its rows are zeroed below.
    outside = None if mask is None else ~(mask | ~mask.any(-1, keepdim=True))[..., None]  # [..., T, 1]
    for step in range(iterations):
        rows = torch.log_softmax(logits + potential, -1) if step else logits
        rows = rows if outside is None else rows.masked_fill(outside, -math.inf)
        potential = potential - torch.logsumexp(rows, -2, keepdim=True)
        # A common constant cancels; uncentred it would grow.
        potential = potential - potential.mean(-1, keepdim=True)
    groups = torch.softmax(logits + potential, -1)
    return (groups if mask is None else groups * mask[..., None]).float()


def prefix_sinkhorn(
    scores: Tensor, temperature: float = 0.1, iterations: int = 10, mask: Tensor | None = None
) -> Tensor:
    """Balanced assignment without the future: row t is that of `sinkhorn` over the tokens up to t (definitions 2.1),
    so the work grows with T^2 K N. Shapes, mask and errors as `sinkhorn`."""
    scores, mask = _of_tokens(scores, mask)
    logits = _logits(scores, temperature, iterations)
    if logits.shape[-2] == 0 or not iterations:
        groups = torch.softmax(logits, -1)
        return (groups if mask is None else groups * mask[..., None]).float()
    exact = logits if logits.device.type == "mps" else logits.double()
    # A product of three would underflow.
    if exact.max() - exact.min() > -math.log(torch.finfo(exact.dtype).tiny) / 3:
        parts = [mask if mask is None else mask[..., : end + 1] for end in range(logits.shape[-2])]
        balanced = (sinkhorn(logits[..., : end + 1, :], 1.0, iterations, part) for end, part in enumerate(parts))
        return torch.cat([groups[..., -1:, :] for groups in balanced], -2)
    shares = (exact - exact.amax(-1, keepdim=True)).exp()  # [..., T, K]: a row's scale is divided out
    if mask is None:
        mask = torch.ones(logits.shape[:-1], dtype=torch.bool, device=logits.device)
    real = mask.cummax(-1).values[..., None]  # [..., T, 1]; the rows before any real token come back as zeros
    counted = exact.masked_fill(~mask[..., None], torch.finfo(exact.dtype).min / 4)
    potential = torch.where(real, -torch.logcumsumexp(counted, -2), 0.0)
    places, potentials = torch.arange(logits.shape[-2], device=logits.device), []
    for prefixes in places.split(max(1, ENTRIES // max(1, mask.numel()))):  # prefixes handled at once
        upto = int(prefixes[-1]) + 1
        counts = mask[..., None, :upto] | ~real[..., prefixes, :]
        inside = (places[:upto] <= prefixes[:, None]) & counts  # [..., n, upto]
        bias, some = potential[..., prefixes, :], shares[..., :upto, :]
        for step in range(iterations):
            if step:
                weight = bias.exp()
                total = weight @ some.transpose(-1, -2)  # [..., n, upto]: what normalises each token's row
                bias = bias - (weight * ((inside / total) @ some)).log()
            bias = bias - bias.mean(-1, keepdim=True)
        potentials.append(bias)
    groups = torch.softmax(logits + torch.cat(potentials, -2).to(logits), -1)
    return (groups * mask[..., None]).float()


@torch.no_grad()
def frozen_potential(scores: Tensor, temperature: float = 0.1, iterations: int = 50) -> Tensor:
    """The bias per group, centred, of one Sinkhorn run over all pooled calibration tokens.

    scores [..., K], read in blocks so that memory stays bounded. Returns float32 [K]. Errors: BadSetting.
    """
    logits = _logits(scores, temperature, iterations).flatten(0, -2)
    if not len(logits):
        raise BadSetting("The balance of the groups needs at least 1 calibration token, and the pool holds 0.")
    exact = torch.float32 if logits.device.type == "mps" else torch.float64
    narrow = float((logits.amax(-1) - logits.amin(-1)).max()) < -math.log(torch.finfo(exact).tiny) / 3
    blocks = logits.split(CHUNK)
    potential = torch.zeros(logits.shape[-1], dtype=exact, device=logits.device)  # [K]
    # The e^(logits - their row's largest) of a pool that is one block: computed once.
    shares = None
    for step in range(iterations):
        total = torch.full_like(potential, -math.inf)
        for block in blocks:
            rows = block.to(exact)
            # Products of exponentials: nothing of them underflows.
            if step and narrow:
                if shares is None or len(blocks) > 1:
                    shares = (rows - rows.amax(-1, keepdim=True)).exp()
                update = potential + ((shares @ potential.exp()).reciprocal() @ shares).log()
            else:
                update = torch.logsumexp(torch.log_softmax(rows + potential, -1) if step else rows, 0)
            total = torch.logaddexp(total, update)
        potential = potential - total
        potential = potential - potential.mean()
    return potential.float()


def assign(scores: Tensor, temperature: float, potential: Tensor) -> Tensor:
    """The causal assignment `softmax(scores / temperature + potential)`: each token by itself, no future read.

    With the potential of a Sinkhorn run over the same scores it equals that run. scores [..., T, K], potential [K];
    float32 [..., T, K]. Errors: BadSetting.
    """
    logits = _logits(scores, temperature, 0)
    return torch.softmax(logits + potential.to(logits), -1).float()


def _logits(scores: Tensor, temperature: float, iterations: int) -> Tensor:
    """Checked `scores / temperature` in float32 or float64."""
    if not (isinstance(temperature, (int, float)) and math.isfinite(temperature) and temperature > 0):
        raise BadSetting(f"The temperature of the groups must be above 0, and it is {temperature}; the paper uses 0.1.")
    if not isinstance(iterations, int) or iterations < 0:
        raise BadSetting(f"Sinkhorn iterations must be a whole number from 0 on, got {iterations}; the paper uses 10.")
    if scores.dim() < 2 or scores.shape[-1] == 0:
        raise BadSetting(f"Scores are [..., tokens, groups] with at least 1 group, not {list(scores.shape)}.")
    logits = (scores if scores.dtype == torch.float64 else scores.float()) / temperature
    if not accelerated(logits) and not bool(torch.isfinite(logits).all()):
        raise BadSetting(
            f"Some scores divided by the temperature {temperature} are not finite numbers; the router is damaged or "
            "its scale is far too large, so load or fit another one."
        )
    return logits


def _of_tokens(scores: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Scores with zeros in place of what is no token, and the mask as bool in the shape of the tokens."""
    if mask is None:
        return scores, None
    try:
        mask = mask.to(device=scores.device, dtype=torch.bool).expand(scores.shape[:-1])
    except RuntimeError:
        raise BadSetting(
            f"The mask has shape {list(mask.shape)} and the tokens {list(scores.shape[:-1])}; they must agree."
        ) from None
    return torch.where(mask[..., None], scores, 0.0), mask
