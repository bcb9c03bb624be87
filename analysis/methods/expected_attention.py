"""Expected attention: keep the keys that queries to come are expected to look at."""

from dataclasses import dataclass

import torch
from torch import Tensor

from analysis.calls import Prompt
from analysis.eviction.scores import REACH, expected_attention
from analysis.methods.evicting import Evicting
from analysis.routers.rotation import turned, unrotate


@dataclass
class ExpectedAttention(Evicting):
    """Every head keeps the keys that future queries are expected to give most weight, times the length of their values.

    The queries of the prompt, before their rotation, have a mean and a covariance; a future query is taken as one drawn
    from them, at one of the next 512 positions. What such queries give a key on average has a formula, so nothing is
    sampled. The first four keys always stay. The end of the prompt plays no special part.
    """

    title = "Expected attention"
    paper = "Devoto et al., 2025 (Expected Attention), arXiv 2510.00636"

    def worth(self, prompt: Prompt) -> Tensor:
        plain = unrotate(prompt.query.float(), prompt.module, prompt.tables)
        ahead = mean_rotation(prompt.tables, REACH)

        def turn(x: Tensor) -> Tensor:
            return x if ahead is None else turned(x, prompt.module, *(table.to(x) for table in ahead))

        return expected_attention(plain, prompt.key, prompt.value, turn)


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
