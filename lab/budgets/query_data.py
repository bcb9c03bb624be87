"""What a query router learns from: query vectors of dense attention with the number of keys that hold 90% of it."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F

from analysis.errors import BadSetting
from analysis.kernels.rank import top_p_rank
from analysis.methods.base import Method
from analysis.models import Model
from analysis.seam.attention import apply
from analysis.seam.calls import Attended, Call
from analysis.statistics import forward

QUERIES = 32  # of each window, head by head the same places


@dataclass(frozen=True)
class Samples:
    """Queries of heads: `q` float32 [N, D] as they meet the keys, `cell` int [N] (layer * H + head), `place` int [N] in
    a window of `length` tokens, `log_k` float32 [N] the logarithm of the fewest keys that hold the mass."""

    q: torch.Tensor
    cell: torch.Tensor
    place: torch.Tensor
    log_k: torch.Tensor
    length: int

    def __len__(self) -> int:
        return len(self.cell)


@dataclass
class Asked(Method):
    """Dense attention that notes, for some queries, the vectors and how many keys hold `mass` of their attention."""

    mass: float = 0.9
    places: np.ndarray | None = None
    noted: list[tuple] = field(default_factory=list)

    def attend(self, call: Call) -> Attended:
        heads, length = call.query.shape[1:3]
        out = F.scaled_dot_product_attention(
            call.query, call.key, call.value, is_causal=True, scale=call.scaling, enable_gqa=heads != call.key.shape[1]
        )
        places = torch.as_tensor(self.places, device=call.query.device)
        queries = call.query[0, :, places].float()  # [H, n, D]
        keys = call.key[0].float().repeat_interleave(heads // call.key.shape[1], 0)
        scores = queries @ keys.transpose(1, 2) * call.scaling
        future = torch.arange(length, device=scores.device) > places[:, None]
        ranks = top_p_rank(torch.softmax(scores.masked_fill_(future, float("-inf")), -1), self.mass)  # [H, n]
        cells = call.layer * heads + torch.arange(heads)
        self.noted.append(
            (
                queries.flatten(0, 1).cpu(),
                cells.repeat_interleave(len(places)),
                places.cpu().repeat(heads),
                ranks.flatten().float().log().cpu(),
            )
        )
        return Attended(out, "torch dense", "Some queries are noted beside.")


@torch.no_grad()
def sample_queries(
    model: Model, windows: np.ndarray, mass: float, seed: int, progress: Callable[[float], None] | None = None
) -> Samples:
    """Queries at QUERIES random places of each window of token ids [n, T], of every head.

    `progress(fraction)` is called before each window. Errors: BadSetting for a model whose layers read windows or cap
    their scores: there a query does not meet all keys as they are.
    """
    count, length = windows.shape
    random, method = np.random.default_rng(seed), Asked(mass=mass)
    for at, ids in enumerate(windows):
        if progress:
            progress(at / count)
        method.places = np.sort(random.choice(length, min(QUERIES, length), replace=False))
        with apply(model, method, kernels=True):
            forward(model, ids)
    if len(method.noted) < count * model.num_layers:
        raise BadSetting(
            f"{model.name} has layers that read a window or cap their scores, and a query router is studied on plain "
            "causal attention: choose another model."
        )
    return Samples(*(torch.cat(column) for column in zip(*method.noted, strict=True)), length)
