"""A small network that predicts how many keys a query needs, with the query or without it: what it learns from, its
training, and how well it does."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from analysis.errors import BadSetting
from analysis.kernels.rank import top_p_rank
from analysis.methods.base import Method, read_all
from analysis.models import Model
from analysis.seam.attention import apply
from analysis.seam.calls import Attended, Call
from analysis.statistics import forward

# Of each window, head by head the same places.
QUERIES = 32
EMBEDDING, HIDDEN = 32, 128
BATCH, CHECK_EVERY = 1024, 100
BINS = 16  # of positions


@dataclass(frozen=True)
class Samples:
    """Queries of heads: `q` float32 [N, D] as they meet the keys, `cell` int [N] (layer * H + head), `place` int [N] in
    a window of `length` tokens, `log_k` float32 [N] the logarithm of the fewest keys that hold the mass."""

    q: Tensor
    cell: Tensor
    place: Tensor
    log_k: Tensor
    length: int

    def __len__(self) -> int:
        return len(self.cell)

    def groups(self, bins: int) -> Tensor:
        """Head and stretch of positions, int [N]."""
        return self.cell * bins + (self.place * bins // self.length).clamp(max=bins - 1)


@dataclass
class Noting(Method):
    """Dense attention that notes, for some queries, the vectors and how many keys hold `mass` of their attention."""

    mass: float = 0.9
    places: np.ndarray | None = None
    noted: list[tuple[Tensor, ...]] = field(default_factory=list)

    def attend(self, call: Call) -> Attended:
        heads, length = call.query.shape[1:3]
        places = torch.as_tensor(self.places, device=call.query.device)
        queries = call.query[0, :, places].float()  # [H, n, D]
        keys = call.key[0].float().repeat_interleave(heads // call.key.shape[1], 0)
        scores = queries @ keys.transpose(1, 2) * call.scaling
        future = torch.arange(length, device=scores.device) > places[:, None]
        ranks = top_p_rank(torch.softmax(scores.masked_fill_(future, float("-inf")), -1), self.mass)  # [H, n]
        cells = (call.layer * heads + torch.arange(heads)).repeat_interleave(len(places))
        log_k = ranks.flatten().float().log().cpu()
        self.noted.append((queries.flatten(0, 1).cpu(), cells, places.cpu().repeat(heads), log_k))
        return read_all(call)


@torch.no_grad()
def sample_queries(
    model: Model, windows: np.ndarray, mass: float, seed: int, progress: Callable[[float], None] = lambda done: None
) -> Samples:
    """Queries at QUERIES random places of each window of token ids [n, T], of every head.

    `progress(fraction)` is called before each window. Errors: BadSetting for a model whose layers read windows or cap
    their scores: there a query does not meet all keys as they are.
    """
    count, length = windows.shape
    random, method = np.random.default_rng(seed), Noting(mass=mass)
    for at, ids in enumerate(windows):
        progress(at / count)
        method.places = np.sort(random.choice(length, min(QUERIES, length), replace=False))
        with apply(model, method, kernels=True):
            forward(model, ids)
    if len(method.noted) < count * model.num_layers:
        raise BadSetting(
            f"{model.name} has layers that read a window or cap their scores, and a query router is studied on plain "
            "causal attention: choose another model."
        )
    q, cell, place, log_k = (torch.cat(column) for column in zip(*method.noted, strict=True))
    return Samples(q, cell, place, log_k, length)


class QueryRouter(nn.Module):
    """log k* from the query [N, D], its norm, its place in the window and its head: 128, 128, 1, ReLU between.

    33,921 parameters for GPT-2 small (12 layers of 12 heads of 64). `ask=False` sets query and norm to zero. `unit`,
    `norm` and `middle` bring inputs to about 1 and the output to its mean.
    """

    def __init__(
        self, cells: int, size: int, length: int, unit: float = 1.0, norm: float = 1.0, middle: float = 0.0
    ) -> None:
        super().__init__()
        self.length, self.unit, self.norm, self.middle = length, unit, norm, middle
        self.cell = nn.Embedding(cells, EMBEDDING)
        first, second = nn.Linear(size + 2 + EMBEDDING, HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.layers = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Linear(HIDDEN, 1))

    @classmethod
    def of(cls, samples: Samples, cells: int) -> "QueryRouter":
        """Made for the scale of some samples."""
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
    progress: Callable[[float], None] = lambda done: None,
) -> Trained:
    """Least squares on log k* with Adam, once per rate; the best checkpoint on `tune` is taken."""
    lowest, curves = float("inf"), []
    chosen: tuple[float, dict[str, Tensor]] = 0.0, {}
    for epoch, rate in enumerate(rates):
        torch.manual_seed(seed)
        router, draw = QueryRouter.of(fit, cells), torch.Generator().manual_seed(seed)
        optimiser, errors = torch.optim.Adam(router.parameters(), lr=rate), {}
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps, rate / 20)
        for step in range(1, steps + 1):
            rows = torch.randint(len(fit), (BATCH,), generator=draw)
            guess = router(fit.q[rows], fit.cell[rows], fit.place[rows], ask)
            loss = (guess - fit.log_k[rows]).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            if step % CHECK_EVERY == 0 or step == steps:
                progress((epoch + step / steps) / len(rates))
                errors[step] = float((predict(router, tune, ask) - tune.log_k).square().mean())
                if errors[step] < lowest:
                    lowest = errors[step]
                    chosen = rate, {name: value.clone() for name, value in router.state_dict().items()}
        errors = {step: round(error, 6) for step, error in errors.items()}
        curves.append({"rate": rate, "steps": list(errors), "error": list(errors.values())})
    best = QueryRouter.of(fit, cells)
    best.load_state_dict(chosen[1])
    return Trained(best.eval(), chosen[0], curves)


@torch.no_grad()
def predict(router: QueryRouter, samples: Samples, ask: bool = True) -> Tensor:
    """log k* of samples, float32 [N]."""
    parts = zip(*(x.split(1 << 16) for x in (samples.q, samples.cell, samples.place)), strict=True)
    return torch.cat([router(*part, ask) for part in parts])


def table_means(fit: Samples, samples: Samples, bins: int) -> Tensor:
    """The mean log k* of the fitting samples in each head and each of `bins` stretches of positions: what a table
    knows, float32 [N]. A place that no sample fell into has the mean of all."""
    total = int(max(fit.cell.max(), samples.cell.max()) + 1) * bins
    where = fit.groups(bins)
    sums = torch.zeros(total).index_add_(0, where, fit.log_k)
    counts = torch.bincount(where, minlength=total)
    means = torch.where(counts > 0, sums / counts.clamp(min=1), fit.log_k.mean())
    return means[samples.groups(bins)]


def correlations(guess: Tensor, samples: Samples) -> dict[str, float | None]:
    """Pearson correlation of a prediction with log k*: `pooled`, `within_head` and `within_head_and_position` (both
    with the means of their groups taken off, so that nothing is left of which head or place it is; None where the
    prediction has no spread there), and the `error`, the mean square in nats."""
    values = {"pooled": _pearson(guess, samples.log_k)}
    for name, bins in {"within_head": 1, "within_head_and_position": BINS}.items():
        groups = samples.groups(bins)
        values[name] = _pearson(_demeaned(guess, groups), _demeaned(samples.log_k, groups))
    return values | {"error": float((guess - samples.log_k).square().mean())}


def _demeaned(values: Tensor, groups: Tensor) -> Tensor:
    size, values = int(groups.max()) + 1, values.double()
    sums = torch.zeros(size, dtype=torch.float64).index_add_(0, groups, values)
    return values - (sums / torch.bincount(groups, minlength=size).clamp(min=1))[groups]


def _pearson(first: Tensor, two: Tensor) -> float | None:
    a, b = (x.double().numpy() - float(x.double().mean()) for x in (first, two))
    spread = float(np.sqrt((a @ a) * (b @ b)))
    deviation = float(np.sqrt(a @ a / len(a)))
    return float(a @ b) / spread if deviation > 1e-6 and spread > 0 else None
