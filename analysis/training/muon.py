"""The optimisers of hidden matrices: Muon (Jordan et al. 2024), and AdamW in its place."""

from collections import defaultdict
from typing import Any

import torch

from ..models.arithmetic import quick_type


class Muon(torch.optim.Muon):
    """PyTorch's takes one matrix at a time and always in bfloat16: here the same updates, of AdamW's size, for all
    matrices of one shape at once and in the type that the hardware multiplies in; for six layers of width 256, 0.4 s
    instead of 11 s on a CPU without bfloat16 (two AVX2 cores).

    `products` is that type. It is measured, so two processes on one busy machine may differ: a checkpoint keeps it, and
    a training that goes on takes the one it was begun with.
    """

    def __init__(self, matrices: list[torch.nn.Parameter], lr: float, weight_decay: float) -> None:
        super().__init__(matrices, lr=lr, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw")
        self.products = quick_type(matrices[0].device)

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """One update of every matrix that has a gradient."""
        for group in self.param_groups:
            shapes = defaultdict(list)
            for p in group["params"]:
                if p.grad is not None:
                    shapes[p.shape].append(p)
            for shape, matrices in shapes.items():
                updates = []
                for p in matrices:
                    momentum = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p.grad))
                    momentum.lerp_(p.grad, 1 - group["momentum"])
                    updates.append(p.grad.lerp(momentum, group["momentum"]))
                about = group["ns_coefficients"], group["ns_steps"], group["eps"]
                straight = orthogonal(torch.stack(updates), *about, self.products)
                # Moonlight's factor, with which an update has the size of AdamW's.
                rate = group["lr"] * 0.2 * max(shape) ** 0.5
                for p, update in zip(matrices, straight, strict=True):
                    p.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-rate)


class AdamW(torch.optim.AdamW):
    """PyTorch's own, with the type that the hardware multiplies in, `products` as of `Muon`."""

    def __init__(self, matrices: list[torch.nn.Parameter], **settings: Any) -> None:
        super().__init__(matrices, **settings)
        self.products = quick_type(matrices[0].device)


def orthogonal(
    matrices: torch.Tensor, coefficients: tuple, steps: int, eps: float, products: torch.dtype
) -> torch.Tensor:
    """About the nearest orthogonal matrix of each of [N, R, C], with singular values between 0.5 and 1.5, by the
    quintic Newton-Schulz iteration with its products in the type `products`."""
    a, b, c = coefficients
    tall = matrices.shape[1] > matrices.shape[2]
    x = (matrices.mT if tall else matrices).to(products)
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).to(matrices.dtype)
