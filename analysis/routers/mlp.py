"""The learned routers that the closed form is held against: trained on bucket masses, two layers or one per head."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import BadSetting
from .base import RoutedText, Router

# Queries a head is trained on.
MOST = 1 << 16
# Every eighth of them decides when to stop.
HELD_OUT = 8
BATCH, EPOCHS, PATIENCE = 512, 50, 4
# Highest rate of each optimiser; queries have a mean square of 1.
RATES = {"adam": 2e-3, "sgd": 1.0}
Weights = dict[str, Tensor]


class SaapMLP(Router):
    """Saap-style: q -> 4 D units (at least 128), GELU -> C scores, trained by soft cross-entropy against the masses,
    whose best answer is E[y | q]: the target of least squares too, so the two differ in the functions they can be.

    Adam with a cosine rate over at most 50 epochs; each head keeps the weights of its best held-out recall at C / 32
    buckets, and all stop when none got better for 4 epochs. SGD (GWR, section 4.1) goes through all 50 and keeps the
    last weights. Width, loss, rate, batch and momentum of the original are not known here.
    """

    kind = "mlp"
    NAMES: tuple[str, ...] = ("w1", "b1", "w2", "b2")
    # The loss: squared error instead of cross-entropy.
    squared = False

    def fit(self, queries: Tensor, mass: Tensor, epochs: int = EPOCHS, optimiser: str = "adam") -> "SaapMLP":
        """Train on queries [..., n, D] and masses [..., n, C], at most 65,536 of them; returns self. The leading
        dimensions are heads, each trained for itself."""
        if queries.shape[:-1] != mass.shape[:-1] or queries.shape[-2] < 2 * HELD_OUT:
            raise BadSetting(
                f"The {self.kind} router needs at least {2 * HELD_OUT} pairs of queries and masses, and got "
                f"{list(queries.shape)} and {list(mass.shape)}."
            )
        draw = torch.Generator().manual_seed(self.seed)
        order = torch.randperm(queries.shape[-2], generator=draw)[:MOST].to(queries.device)
        lead = queries.shape[:-2]
        x, y = (rows[..., order, :].reshape(lead.numel(), len(order), -1).float() for rows in (queries, mass))
        y = y / y.sum(-1, keepdim=True).clamp(min=1e-12)
        # Queries of one size for all heads, so that one rate fits them; the weights take the size back below.
        size = x.square().mean((1, 2), keepdim=True).sqrt().clamp(min=1e-12)
        start = self._start(x.shape[-1], y.shape[-1], lead.numel(), draw)
        start = {name: weight.to(x.device) for name, weight in start.items()}
        best = _train(start, x / size, y, draw, epochs, self.squared, optimiser)
        best[self.NAMES[0]] = best[self.NAMES[0]] / size
        for name in self.NAMES:
            # They are stored in 16 bits, and what is stored is what is measured.
            value = best[name].half().float()
            setattr(self, f"{name}_", value.reshape(*lead, *value.shape[1:]))
        return self

    def _start(self, dim: int, buckets: int, heads: int, draw: torch.Generator) -> Weights:
        """Weights [heads, ...] before the first step."""
        width = max(128, 4 * dim)
        shapes = {"w1": (dim, width), "b1": (1, width), "w2": (width, buckets), "b2": (1, buckets)}
        scale = {"w1": dim**-0.5, "w2": width**-0.5}
        return {n: torch.randn(heads, *shape, generator=draw) * scale.get(n, 0.0) for n, shape in shapes.items()}

    def _scores(self, queries: Tensor, text: RoutedText) -> Tensor:
        return _forward({name: tensor.to(queries) for name, tensor in self.tensors().items()}, queries)


class MLPSquared(SaapMLP):
    """The same network trained by squared error, as least squares is: what the loss alone changes (an ablation)."""

    kind = "mlp_squared"
    squared = True


class LinearCrossEntropy(SaapMLP):
    """Scores q W like GWR linear, trained by soft cross-entropy like the MLP: what the loss alone changes (an
    ablation). One matrix per head, no intercept."""

    kind = "linear_cross_entropy"
    NAMES: tuple[str, ...] = ("w",)

    def _start(self, dim: int, buckets: int, heads: int, draw: torch.Generator) -> Weights:
        return {"w": torch.zeros(heads, dim, buckets)}


LEARNED = (SaapMLP, MLPSquared, LinearCrossEntropy)


def _train(
    weights: Weights, x: Tensor, y: Tensor, draw: torch.Generator, epochs: int, squared: bool, optimiser: str
) -> Weights:
    """Weights of the best epoch of each head, with SGD those of the last; x [h, n, D], y [h, n, C], of which the first
    rows are held out."""
    split = x.shape[1] // HELD_OUT
    rows = x.shape[1] - split
    moments = {name: (torch.zeros_like(w), torch.zeros_like(w)) for name, w in weights.items()}
    best = {name: w.clone() for name, w in weights.items()}
    record, since, step = _recall(weights, x[:, :split], y[:, :split]), 0, 0
    steps = epochs * math.ceil(rows / BATCH)
    for _ in range(epochs):
        order = (split + torch.randperm(rows, generator=draw)).to(x.device)
        for batch in order.split(BATCH):
            step += 1
            rate = RATES[optimiser] * (1 + math.cos(math.pi * step / steps)) / 2
            gradients = _gradients(weights, x[:, batch], y[:, batch], squared)
            for name, gradient in gradients.items():
                if optimiser == "sgd":
                    weights[name].sub_(gradient, alpha=rate)
                    continue
                first, second = moments[name]
                first.lerp_(gradient, 0.1)
                second.lerp_(gradient.square(), 0.001)
                # Adam (Kingma & Ba, 2015, algorithm 1), betas of 0.9 and 0.999, both corrected for their start at 0.
                size = (second / (1 - 0.999**step)).sqrt_().add_(1e-8)
                weights[name].addcdiv_(first, size, value=-rate / (1 - 0.9**step))
        if optimiser == "sgd":
            continue
        reached = _recall(weights, x[:, :split], y[:, :split])
        better = reached > record
        for name, weight in best.items():
            weight[better] = weights[name][better]
        record = torch.maximum(record, reached)
        since = 0 if bool(better.any()) else since + 1
        if since == PATIENCE:
            break
    return weights if optimiser == "sgd" else best


def _forward(weights: Weights, x: Tensor) -> Tensor:
    """Scores [..., n, C] of queries [..., n, D], by one matrix or two layers."""
    if "w" in weights:
        return x @ weights["w"]
    return F.gelu(x @ weights["w1"] + weights["b1"], approximate="tanh") @ weights["w2"] + weights["b2"]


def _gradients(weights: Weights, x: Tensor, y: Tensor, squared: bool) -> Weights:
    """Of the mean loss of each head."""
    leaves = {name: w.detach().requires_grad_() for name, w in weights.items()}
    with torch.enable_grad():
        scores = _forward(leaves, x)
        errors = (scores - y).square() / 2 if squared else -y * F.log_softmax(scores, -1)
        loss = errors.sum() / x.shape[1]
    return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))


def _recall(weights: Weights, x: Tensor, y: Tensor) -> Tensor:
    """Held-out recall of each head at C / 32 buckets, [h]."""
    chosen = _forward(weights, x).topk(max(1, y.shape[-1] // 32), -1).indices
    return y.gather(-1, chosen).sum(-1).mean(-1)
