"""A small network that predicts how many keys a query needs, with the query or without it, and how well it does."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from lab.budgets.query_data import Samples

EMBEDDING, HIDDEN = 32, 128
BATCH, CHECK_EVERY = 1024, 100
BINS = 16  # of positions


class QueryRouter(nn.Module):
    """log k* from the query [N, D], its norm, its place in the window and its head: 128, 128, 1, ReLU between.

    33,921 parameters for GPT-2 small (12 layers of 12 heads of 64). `ask=False` sets query and norm to zero.
    """

    def __init__(
        self, cells: int, size: int, length: int, unit: float = 1.0, norm: float = 1.0, middle: float = 0.0
    ) -> None:
        super().__init__()
        self.length, self.unit, self.norm, self.middle = length, unit, norm, middle
        self.cell = nn.Embedding(cells, EMBEDDING)
        self.layers = nn.Sequential(
            nn.Linear(size + 2 + EMBEDDING, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, 1),
        )

    @classmethod
    def of(cls, samples: Samples, cells: int) -> "QueryRouter":
        """Made for the scale of some samples: inputs of about 1, an output of the mean."""
        unit, norms = samples.q.square().mean().sqrt(), samples.q.norm(dim=1)
        scales = float(unit), float(norms.mean()), float(samples.log_k.mean())
        return cls(cells, samples.q.shape[1], samples.length, *scales)

    def forward(self, q: Tensor, cell: Tensor, place: Tensor, ask: bool = True) -> Tensor:
        """log k* [N]."""
        inputs = torch.cat([q / self.unit, q.norm(dim=1, keepdim=True) / self.norm], 1) * float(ask)
        position = place[:, None].float() / self.length
        return self.layers(torch.cat([inputs, position, self.cell(cell)], 1))[:, 0] + self.middle


@dataclass(frozen=True)
class Trained:
    """The best router of several rates by its error on tuning samples, and every rate's curve of that error."""

    router: QueryRouter
    rate: float
    curves: list[dict]


def train(
    fit: Samples,
    tune: Samples,
    cells: int,
    ask: bool,
    rates: Sequence[float],
    steps: int,
    seed: int,
    progress: Callable[[float], None] | None = None,
) -> Trained:
    """Least squares on log k* with Adam, once per rate; the best checkpoint on `tune` is kept.

    `progress(fraction)` is called every 100 steps.
    """
    best, curves = (float("inf"), None, None), []
    for at, rate in enumerate(rates):
        torch.manual_seed(seed)
        router, draw = QueryRouter.of(fit, cells), torch.Generator().manual_seed(seed)
        optimiser, errors = torch.optim.Adam(router.parameters(), lr=rate), []
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps, rate / 20)
        for step in range(steps):
            if step % CHECK_EVERY == 0 and progress:
                progress((at + step / steps) / len(rates))
            rows = torch.randint(len(fit), (BATCH,), generator=draw)
            guess = router(fit.q[rows], fit.cell[rows], fit.place[rows], ask)
            loss = (guess - fit.log_k[rows]).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            if (step + 1) % CHECK_EVERY == 0 or step + 1 == steps:
                errors.append((step + 1, float((predict(router, tune, ask) - tune.log_k).square().mean())))
                if errors[-1][1] < best[0]:
                    best = errors[-1][1], rate, {name: value.clone() for name, value in router.state_dict().items()}
        curves.append({"rate": rate, "steps": [s for s, _ in errors], "error": [round(e, 6) for _, e in errors]})
    chosen = QueryRouter.of(fit, cells)
    chosen.load_state_dict(best[2])
    return Trained(chosen.eval(), best[1], curves)


@torch.no_grad()
def predict(router: QueryRouter, samples: Samples, ask: bool = True) -> Tensor:
    """log k* of samples, float32 [N]."""
    parts = zip(*(x.split(1 << 16) for x in (samples.q, samples.cell, samples.place)), strict=True)
    return torch.cat([router(*part, ask) for part in parts])


def table_means(fit: Samples, samples: Samples, bins: int) -> Tensor:
    """The mean log k* of the fitting samples in each head and each of `bins` stretches of positions: what a table
    knows, float32 [N]. A place that no sample fell into has the mean of all."""
    total = int(max(fit.cell.max(), samples.cell.max()) + 1) * bins
    where, there = _groups(fit, bins), _groups(samples, bins)
    sums = torch.zeros(total).index_add_(0, where, fit.log_k)
    counts = torch.bincount(where, minlength=total)
    means = torch.where(counts > 0, sums / counts.clamp(min=1), fit.log_k.mean())
    return means[there]


def correlations(guess: Tensor, samples: Samples) -> dict:
    """Pearson correlation of a prediction with log k*: `pooled`, `within_head` and `within_head_and_position` (both
    with the means of their groups taken off, so that nothing is left of which head or place it is; None where the
    prediction has no spread there), and the `error`, the mean square in nats."""
    values = {"pooled": _pearson(guess, samples.log_k)}
    for name, bins in {"within_head": 1, "within_head_and_position": BINS}.items():
        groups = _groups(samples, bins)
        values[name] = _pearson(_demeaned(guess, groups), _demeaned(samples.log_k, groups))
    return values | {"error": float((guess - samples.log_k).square().mean())}


def _groups(samples: Samples, bins: int) -> Tensor:
    """int [N]: head and stretch of positions."""
    return samples.cell * bins + (samples.place * bins // samples.length).clamp(max=bins - 1)


def _demeaned(values: Tensor, groups: Tensor) -> Tensor:
    size, values = int(groups.max()) + 1, values.double()
    sums = torch.zeros(size, dtype=torch.float64).index_add_(0, groups, values)
    return values - (sums / torch.bincount(groups, minlength=size).clamp(min=1))[groups]


def _pearson(a: Tensor, b: Tensor) -> float | None:
    a, b = (x.double().numpy() - float(x.double().mean()) for x in (a, b))
    spread = float(np.sqrt((a @ a) * (b @ b)))
    alike = float(np.sqrt(a @ a / len(a)))
    return float(a @ b) / spread if alike > 1e-6 and spread > 0 else None
