"""What fine-tuning with learned groups is held against: the base learns under a hard mask that no router decides."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from analysis.groups.controls import random_tokens
from analysis.training.mitigations import Learning
from analysis.training.settings import CONTROLS, RouterTraining


@dataclass
class Control(Learning):
    """Groups by chance, as many and as many per token as the router has, drawn anew for every text and layer (the
    plan's reading is `drawn`), or the window and the sinks alone (`alone`; a window as long as the text is full
    attention). Deterministic: the seed of the plan, the turn and the layer decide."""

    def observe(self, layer: int, hidden: Tensor, real: Tensor | None) -> Tensor:
        batch, length = hidden.shape[:2]
        if self.plan.reading == "alone":
            return torch.zeros(batch, length, 1, dtype=torch.bool, device=hidden.device)
        seed = np.random.SeedSequence([self.plan.seed, *self.turn, layer]).generate_state(1)
        members = random_tokens(batch * length, self.router.K, self.top, int(seed[0]))  # [B T, K]
        return members.view(batch, length, -1).to(hidden.device)


def method_of(plan: RouterTraining, router) -> Learning:
    """How the attention is read in training: Focus with this router, or the control that the plan names."""
    if plan.reading in CONTROLS:
        return Control.build(router, reading="hard", membership="literal", plan=plan)
    return Learning.build(router, reading=plan.reading, membership="literal", plan=plan)
