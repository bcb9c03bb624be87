"""How alike two heads read the same text: from the Jensen-Shannon divergence of what they give to its tokens."""

import math

import torch


def likeness(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """[n]: one minus the Jensen-Shannon divergence, in bits, of what two heads give to the same keys, query by query.

    `one`, `other` [n, m], rows summing to 1. 1: the same attention; 0: no key in common. Clark et al. 2019 (section 6)
    compare the heads of a model by the sum of this divergence over the tokens of a text.
    """
    mixed, *entropies = (torch.special.entr(rows).sum(-1) for rows in ((first + second) / 2, first, second))
    return 1 - (mixed - sum(entropies) / 2) / math.log(2)
