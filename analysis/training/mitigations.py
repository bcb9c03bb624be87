"""What Focus' table 8 tries against routing collapse in place of Sinkhorn, and Focus as it is read in training.

The paper gives no formulas: the balance loss is that of Switch Transformers (Fedus et al., 2022, equation 4), which it
cites for routing collapse; the others are the plainest readings. Shapes: N tokens, K groups, d_s routing dimensions.
"""

from dataclasses import dataclass, field
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..groups.controls import random_tokens
from ..groups.kmeans import spherical_kmeans
from ..groups.router import FocusRouter
from ..methods.focus import Focus
from .settings import CONTROLS, RouterTraining

# Below it an assignment has no gradient: at 0 that of its entropy is infinite.
TINY = 1e-30


def balance_loss(groups: Tensor) -> Tensor:
    """K sum_k f_k P_k of soft assignments [..., N, K]: f_k the share of tokens whose best group is k, P_k the mean
    assignment. 1 when balanced, up to K when one group holds all; the gradient goes through P alone."""
    flat = groups.flatten(0, -2)  # [N, K]
    shares = F.one_hot(flat.argmax(-1), flat.shape[-1]).to(flat).mean(0)
    return flat.shape[-1] * (shares * flat.mean(0)).sum()


def entropy_loss(groups: Tensor) -> Tensor:
    """Mean entropy of the tokens' soft assignments [..., N, K] in nats: 0 when every token is sure of its group."""
    return torch.special.entr(groups.clamp_min(TINY)).sum(-1).mean()


@torch.no_grad()
def follow(centroids: Tensor, vectors: Tensor, groups: Tensor, decay: float) -> Tensor:
    """Centroids [K, d_s] moved towards the direction of their tokens' mean: decay * C + (1 - decay) * |C| m / |m|.

    vectors [N, d_s], soft assignments groups [N, K]; a group without tokens stays.
    """
    direction = F.normalize(groups.T @ vectors, dim=-1)  # [K, d_s]
    wanted = direction * centroids.norm(dim=-1, keepdim=True)
    nonempty = (groups.sum(0) > 1e-6)[:, None] & direction.any(-1, keepdim=True)
    return torch.where(nonempty, decay * centroids + (1 - decay) * wanted, centroids)


@torch.no_grad()
def recluster(router: FocusRouter, hidden: list[Tensor], seed: int) -> None:
    """Set the centroids to spherical k-means of the routing vectors of hidden [L][N, width], keeping their mean
    length; the projection stays."""
    for layer, sample in enumerate(hidden):
        vectors = router.project(layer, sample.to(router.projection.device)).chunk(router.heads, -1)
        directions = torch.cat([spherical_kmeans(of_head, router.K, seed)[0] for of_head in vectors])
        router.centroids[layer] = directions * router.centroids[layer].norm(dim=-1).mean()


@dataclass
class Learning(Focus):
    """Focus as it is read in training; notes what enters the router and what leaves it, layer by layer."""

    plan: RouterTraining = field(default_factory=RouterTraining)
    # Layer, hidden [B, T, d] cut loose, groups [B, T, K] or [B, T, heads, K].
    seen: list[tuple[int, Tensor, Tensor]] = field(default_factory=list)
    turn: tuple[int, ...] = (0, 0)

    def begin(self, *turn: int) -> None:
        """Before a text: forget the last one; `turn` (step from 1 on, number in it) names a text that is trained on."""
        self.seen.clear()
        self.turn = turn or (0, 0)

    def token_features(self, layer: int, hidden: Tensor, real: Tensor | None) -> Tensor | None:
        groups = super().token_features(layer, hidden.detach() if self.plan.detach else hidden, real)
        # A layer that is computed again on the way back was noted before.
        if groups is not None and layer not in [noted for noted, *_ in self.seen]:
            self.seen.append((layer, hidden.detach(), groups))
        return groups

    def penalty(self) -> Tensor | float:
        """What the plan's losses add to the language model's, the mean over layers of the last text."""
        total: Tensor | float = 0.0
        for weight, loss in ((self.plan.balance_weight, balance_loss), (self.plan.entropy_weight, entropy_loss)):
            for *_, groups in self.seen if weight else ():
                of_heads = self._of_heads(groups)
                total = total + weight * sum(loss(one) for one in of_heads) / (len(of_heads) * len(self.seen))
        return total

    def _of_heads(self, groups: Tensor) -> tuple[Tensor, ...]:
        """Assignments [B, T, K] or [B, T, heads, K] as those of each head [B T, K]."""
        assert self.router is not None
        return groups.reshape(-1, self.router.heads, self.router.K).unbind(1)

    @torch.no_grad()
    def move_centroids(self) -> None:
        """After a step with `ema`: every layer's centroids follow the tokens of the last text."""
        assert self.router is not None
        for layer, hidden, groups in self.seen:
            heads = self.router.heads
            vectors = self.router.project(layer, hidden).flatten(0, -2).chunk(heads, -1)
            apart = zip(
                self.router.centroids[layer].chunk(heads), vectors, self._of_heads(groups.detach()), strict=True
            )
            self.router.centroids[layer] = torch.cat([follow(*of_head, self.plan.ema) for of_head in apart])


@dataclass
class Control(Learning):
    """Groups by chance, as many and as many per token as the router has, drawn anew for every text and layer (the
    plan's reading is `drawn`), or the window and the sinks alone (`alone`; a window as long as the text is full
    attention). Deterministic: the seed of the plan, the turn and the layer decide."""

    def token_features(self, layer: int, hidden: Tensor, real: Tensor | None) -> Tensor | None:
        assert self.router is not None
        if not self.groups_in(layer):
            return None
        batch, length = hidden.shape[:2]
        if self.plan.reading == "alone":
            return torch.zeros(batch, length, 1, dtype=torch.bool, device=hidden.device)
        # Never twice the same groups, and the same again when a training is repeated.
        seed = np.random.SeedSequence([self.plan.seed, *self.turn, layer]).generate_state(1)
        members = random_tokens(batch * length, self.router.K, self.top, int(seed[0]))  # [B T, K]
        return members.view(batch, length, -1).to(hidden.device)


def method_of(plan: RouterTraining, router: FocusRouter) -> Learning:
    """How the attention is read in training: Focus with this router, or the control that the plan names."""
    kind, reading = (Control, "hard") if plan.reading in CONTROLS else (Learning, plan.reading)
    return cast(Learning, kind.build(router, reading=reading, membership="literal", plan=plan))
