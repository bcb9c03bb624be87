"""What a model loses without some of its heads: their outputs replaced, and a first-order estimate for all of them.

A head's output is replaced before the output projection, so that `zero` equals that projection with the head's columns
at 0. `mean` puts the head's own mean over the positions of the text in its place, `resample` its output at another
position of the text (a fixed order drawn from a seed): both leave what does not depend on the position (Wang et al.
2022, section 3; Chan et al. 2022). The estimate is the gradient of the loss times the change of the output, one
backward pass for all heads (attribution patching, Nanda 2023).
"""

from collections.abc import Iterable

import numpy as np
import torch
import torch.nn.functional as F

from analysis.attention import apply
from analysis.methods import METHODS
from analysis.metrics.quality import divergence

WAYS = ("zero", "mean", "resample")
Heads = Iterable[tuple[int, int]]  # (layer, head)


def replaced(out: torch.Tensor, by: str, seed: int = 0) -> torch.Tensor:
    """What stands in place of every head's output [B, T, H, D], the same shape."""
    if by == "zero":
        return torch.zeros_like(out)
    if by == "mean":
        return out.mean((0, 1), keepdim=True).expand_as(out)
    order = torch.randperm(out.shape[1], generator=torch.Generator().manual_seed(seed))
    return out[:, order.to(out.device)]


class Without(METHODS["dense"]):
    """Dense attention whose `heads` (layer, head) give something else `by` one of WAYS."""

    def __init__(self, heads: Heads, by: str = "zero", seed: int = 0):
        super().__init__()
        self.heads, self.by, self.seed = {}, by, seed
        for layer, head in heads:
            self.heads.setdefault(layer, []).append(head)

    def leave(self, layer: int, out: torch.Tensor) -> torch.Tensor:
        """The outputs [B, T, H, D] with those of the heads replaced."""
        if layer not in self.heads:
            return out
        chosen = torch.zeros(out.shape[2], dtype=torch.bool, device=out.device)
        chosen[self.heads[layer]] = True
        return torch.where(chosen[None, None, :, None], replaced(out, self.by, self.seed), out)


class Kept(METHODS["dense"]):
    """Dense attention that keeps what leaves its heads, layer by layer, with room for gradients."""

    def __init__(self):
        super().__init__()
        self.outs: list[torch.Tensor] = []

    def leave(self, layer: int, out: torch.Tensor) -> torch.Tensor:
        """The outputs [B, T, H, D], unchanged; those of the first layer are where gradients end."""
        out = out if out.requires_grad else out.detach().requires_grad_()
        out.retain_grad()
        self.outs.append(out)
        return out


def estimated(model, ids: torch.Tensor, by: str = "zero", seed: int = 0) -> np.ndarray:
    """First-order estimate of what the mean loss rises by without each head, nats per token, float32 [layers, heads].

    ids [B, T] of a `Model`; one pass and its gradient by the outputs of the heads alone.
    """
    lm, kept = model.lm, Kept()
    trained = [p for p in lm.parameters() if p.requires_grad]
    for p in trained:
        p.requires_grad_(False)
    try:
        with apply(lm, kept), torch.enable_grad():
            _losses(lm, ids).mean().backward()
    finally:
        for p in trained:
            p.requires_grad_(True)
    changes = [(replaced(out.detach(), by, seed) - out.detach()).float() * out.grad.float() for out in kept.outs]
    return torch.stack([change.sum((0, 1, 3)) for change in changes]).cpu().numpy()


@torch.no_grad()
def ablated(
    model, ids: torch.Tensor, heads: Heads, by: str = "zero", seed: int = 0, reference: torch.Tensor | None = None
) -> tuple[np.ndarray, np.ndarray | None]:
    """(nats of each token [B, T - 1] without these heads, KL divergence from `reference` likewise), float32.

    `reference`: logits [B, T - 1, V] of the whole model (`logits_of`), or None for no divergence.
    """
    with apply(model.lm, Without(heads, by, seed)):
        logits = logits_of(model, ids)
    apart = None if reference is None else divergence(reference, logits).cpu().numpy()
    return _nats(logits, ids).cpu().numpy(), apart


@torch.no_grad()
def logits_of(model, ids: torch.Tensor) -> torch.Tensor:
    """float32 [B, T - 1, V]: what the model says of each next token of windows [B, T]."""
    return model.lm(ids.to(model.device), use_cache=False).logits[:, :-1].float()


def _losses(lm, ids: torch.Tensor) -> torch.Tensor:
    return _nats(lm(ids.to(lm.device), use_cache=False).logits[:, :-1].float(), ids)


def _nats(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    targets = ids[:, 1:].to(logits.device)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)
