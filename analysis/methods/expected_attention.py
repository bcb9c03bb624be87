"""Expected attention: keep the keys that queries to come are expected to look at."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..kernels.scoring import Scoring, at_least_float32
from ..routers.rotation import turned, unrotate
from ..seam.calls import Prompt
from .while_decoding import WhileDecoding

# Positions ahead that are looked at, and the first keys that are never dropped.
REACH, SINKS = 512, 4
# Of the quadrature under a soft cap: under 50 (Gemma 2) to 1e-6 for scores that spread by 10, 2e-5 by 20.
NODES = 32


@dataclass
class ExpectedAttention(WhileDecoding):
    """Every head keeps the keys that future queries are expected to give most weight, times the length of their values.

    The queries of the prompt, before their rotation, have a mean and a covariance; a future query is taken as one drawn
    from them, at one of the next 512 positions. What such queries give a key on average has a formula, so nothing is
    sampled. The first four keys always stay. The end of the prompt plays no special part. In the authors' code these
    four take no part in the softmax, and the covariance is divided by n, here by n - 1; on the bundled model 99% of the
    keys are the same at half of them.
    """

    title = "Expected attention"
    paper = "Devoto et al., 2025 (Expected Attention), arXiv 2510.00636"

    def key_scores(self, prompt: Prompt) -> Tensor:
        plain = unrotate(prompt.query, prompt.module, prompt.tables)
        ahead = mean_rotation(prompt.tables, REACH)

        def turn(x: Tensor) -> Tensor:
            return x if ahead is None else turned(x, prompt.module, *(table.to(x) for table in ahead))

        return expected_scores(plain, prompt.key, prompt.value, turn, prompt.scoring, places=prompt.places)

    @property
    def scoring_queries(self) -> int:
        """Those since the last cut, and two at least: their tables show by how much a position turns."""
        return max(2, self.every)


def expected_scores(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    turn: Callable[[Tensor], Tensor],
    scoring: Scoring,
    sinks: int = SINKS,
    places: Tensor | None = None,
) -> Tensor:
    """What future queries are expected to give a key, times the length of its value: [B, G, L].

    queries [B, H, L, D] *before* their rotation, of which the first `sinks` are left out; keys [B, G, L, D] with it.
    `turn` is linear: it rotates vectors [B, H, n, D] by the mean rotation of the positions to come. Future queries are
    taken for normal, so the expected weight of a key is the softmax of its mean score plus half of its variance. The
    first `sinks` keys have the largest score. `places` [B, G, L]: of keys that are left of a longer text, -1 where
    there is none; the queries are then its last ones, and none is left out.
    """
    group = queries.shape[1] // keys.shape[1]
    sample = queries if places is not None else queries[:, :, min(sinks, queries.shape[2] - 1) :]  # [B, H, n, D]
    mean = sample.mean(2, keepdim=True)
    centred = sample - mean
    covariance = centred.transpose(2, 3) @ centred / max(1, sample.shape[2] - 1)  # [B, H, D, D]
    mean = turn(mean)
    covariance = turn(turn(covariance).transpose(2, 3))  # R S R', symmetric
    repeated = keys.repeat_interleave(group, 1)  # [B, H, L, D]
    scores = (repeated @ mean.transpose(2, 3))[..., 0] * scoring.factor
    variance = ((repeated @ covariance) * repeated).sum(-1) * scoring.factor**2
    if places is None:
        places = torch.arange(keys.shape[2], device=keys.device).expand(keys.shape[:3])
    # The logarithm of the mean exponential of normal scores is a formula, but for scores under a soft cap.
    if scoring.softcap is None:
        logits = scores + variance / 2
    else:
        nodes, shares = (scores.new_tensor(x) for x in np.polynomial.hermite_e.hermegauss(NODES))
        drawn = scores[..., None] + variance.clamp(min=0).sqrt()[..., None] * nodes  # [..., NODES]
        logits = (scoring.capped(drawn) + (shares / shares.sum()).log()).logsumexp(-1)
    weights = torch.softmax(logits.masked_fill(places.repeat_interleave(group, 1) < 0, -torch.inf), -1)
    expected = weights.unflatten(1, (-1, group)).mean(2) * at_least_float32(values).norm(dim=-1)  # [B, G, L]
    return expected.masked_fill((places >= 0) & (places < sinks), torch.inf)


def mean_rotation(tables: tuple[Tensor, Tensor] | None, reach: int) -> tuple[Tensor, Tensor] | None:
    """The mean of the tables (cos, sin) [1, T, D'] over the next `reach` positions, each [1, 1, D']; None without.

    From one position to the next every pair of dimensions turns by the same angle, which the tables show.
    """
    if tables is None:
        return None
    cos, sin = (table.double() for table in tables)
    size = (cos[:, -1:].square() + sin[:, -1:].square()).sqrt()
    angle = torch.atan2(sin, cos)
    step = angle[:, 1:2] - angle[:, :1] if angle.shape[1] > 1 else torch.zeros_like(angle[:, :1])
    ahead = angle[:, -1:] + step * torch.arange(1, reach + 1, device=cos.device)[:, None]
    return (ahead.cos().mean(1, keepdim=True) * size, ahead.sin().mean(1, keepdim=True) * size)
