"""Trainings of routers on tiny models: their tokens and plans, where they are stopped, and what a model must stay."""

from collections.abc import Callable
from dataclasses import replace

import torch

from analysis.errors import Cancelled
from analysis.groups.router import FocusRouter
from analysis.training.settings import RouterTraining
from tests.made.tiny import LAYERS, WIDTH, token_ids

IDS = token_ids(1, 400, seed=5)[0].numpy()
PLAN = RouterTraining(
    groups=4, window=4, n_sink=0, steps=8, tokens_per_step=64, length=32, warm_up=2, calibration_windows=3
)
SECOND = replace(PLAN, phase=2, base_rate=1e-3)


def start(seed: int = 3) -> FocusRouter:
    """A router for the tiny models, balanced enough to begin with."""
    router = FocusRouter(LAYERS, WIDTH, PLAN.router_settings(), seed=seed)
    return router.scale_to([torch.randn(256, WIDTH, generator=torch.Generator().manual_seed(1)) for _ in range(LAYERS)])


def stop_at(done: float) -> Callable[[float, str], None]:
    """A progress that cancels from this fraction on."""

    def progress(fraction: float, stage: str) -> None:
        if fraction >= done:
            raise Cancelled("enough")

    return progress


def equal_numbers(first: torch.nn.Module, second: torch.nn.Module) -> bool:
    """Whether two modules hold the same numbers, bit for bit."""
    second_state = second.state_dict()
    return all(torch.equal(value, second_state[name]) for name, value in first.state_dict().items())


def state(model) -> dict:
    """Everything about a model that training must leave alone."""
    return {name: (value.clone(), value.requires_grad, value.grad) for name, value in model.lm.named_parameters()}


def same(before: dict, model) -> bool:
    """Whether a model is as its `state` says, without a method or a hook on it."""
    unchanged = all(
        torch.equal(value, before[name][0]) and value.requires_grad == before[name][1] and value.grad is None
        for name, value in model.lm.named_parameters()
    )
    return unchanged and clean(model)


def clean(model) -> bool:
    """No method is applied and no hook is left."""
    hooked = any(m._forward_pre_hooks or hasattr(m, "_focuscope") for m in model.lm.modules())
    return not hooked and "focuscope" not in model.lm.config._attn_implementation
