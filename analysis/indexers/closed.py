"""The low-rank indexer in closed form: streamed second moments of states and of what attention picks out of them."""

import torch
from torch import Tensor

from ..errors import NotFitted
from ..routers.moments import Moments, power
from .base import State

# Of the second moments, relative to their mean diagonal.
RIDGE = 1e-3


class LowRankMoments:
    """h[t]' A h[s] of rank r from second moments alone: A comes nearest, in least squares, to how much more attention a
    key gets than its even share, queries and keys taken for independent draws."""

    def __init__(self) -> None:
        # Of places that query, and of the others; both are keys.
        self.of_queries, self.others = Moments(), Moments()
        self.cross: Tensor | float = 0.0

    def add(self, hidden: Tensor, rows: Tensor, attention: Tensor, allowed: Tensor) -> None:
        """Queries at places `rows` [n] of a document [T, d], with attention [H, n, T] on the keys that count."""
        weights = attention.sum(0) * allowed
        some = weights.sum(-1) > 0
        weights, allowed, queries = weights[some], allowed[some].to(weights), hidden[rows[some]]
        even = allowed / allowed.sum(-1, keepdim=True)
        excess = weights / weights.sum(-1, keepdim=True) - even
        self.of_queries.add(queries)
        # The blocks of a document together are all its places: every key once.
        self.others.add(hidden[rows[~some]])
        self.cross = self.cross + queries.double().mT @ (excess @ hidden).double()

    def solve(self, rank: int) -> State:
        """The matrices [r, d] whose product is A. Errors: NotFitted before any document."""
        if not self.of_queries.count:
            raise NotFitted("A low-rank indexer needs at least one document with queries.")
        of_keys = Moments()
        of_keys.sum, of_keys.count = (self.of_queries.sum + self.others.sum, self.of_queries.count + self.others.count)
        whitened = []
        for moments in (self.of_queries, of_keys):
            mean = moments.mean()
            ridge = RIDGE * mean.diagonal().mean() * torch.eye(len(mean), dtype=mean.dtype, device=mean.device)
            whitened.append(power(mean + ridge, -0.5))
        middle = whitened[0] @ torch.as_tensor(self.cross) / self.of_queries.count @ whitened[1]
        left, sizes, right = torch.linalg.svd(middle)
        roots = sizes[:rank].sqrt()
        tensors = (left[:, :rank] * roots).mT @ whitened[0], (right[:rank] * roots[:, None]) @ whitened[1]
        return dict(zip(("q.weight", "k.weight"), (x.float() for x in tensors), strict=True))
