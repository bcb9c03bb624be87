"""Null controls of the groups: what routing looks like when nothing was learned."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .gates import top_groups
from .router import FocusRouter, score_spread


@torch.no_grad()
def random_centroids(router: FocusRouter, hidden: Sequence[Tensor], seed: int = 0) -> FocusRouter:
    """The same router with centroids in random directions: same projection, same spread of scores, own balance.

    hidden [L][N, width]: the sample on which the spread is matched and the potential fitted; give it the sample
    that the router's own potential was fitted on. Errors: BadSetting when the sample does not fit the router.
    """
    router.check(len(hidden))
    control = FocusRouter(router.layers, router.width, router.settings)
    draw = torch.Generator().manual_seed(seed)
    directions = torch.randn(router.centroids.shape, generator=draw)  # [L, K, d_s]
    control.projection.copy_(router.projection)
    control.centroids.copy_(torch.nn.functional.normalize(directions, dim=-1))
    control.to(router.projection.device)
    for layer, sample in enumerate(hidden):
        # Scores that spread alike give assignments as sure as those of the router.
        wanted = score_spread(router.scores(layer, sample))
        control.stretch(layer, wanted / score_spread(control.scores(layer, sample)).clamp_min(1e-12))
    control.fit_potential(hidden)
    control.about = {"kind": "random centroids", "control_of": router.about.get("kind"), "steps": 0, "seed": seed}
    return control


def random_tokens(tokens: int, groups: int, top: int = 1, seed: int = 0) -> Tensor:
    """Membership by chance: each token in `top` distinct groups, all equally likely -> bool [tokens, groups]."""
    return top_groups(torch.rand(tokens, groups, generator=torch.Generator().manual_seed(seed)), top)


def shuffled(members: Tensor, seed: int) -> Tensor:
    """The memberships [T, K] dealt to the tokens by chance: groups of the same sizes."""
    order = torch.randperm(len(members), generator=torch.Generator().manual_seed(seed))
    return members[order.to(members.device)]
