"""Memory of a training step: layers that are computed again give the same gradients, hold less, and what cannot fit is
refused before it begins."""

import copy

import numpy as np
import pytest
import torch

from analysis.errors import TooLarge
from analysis.models import load_model
from analysis.runs.memory import of_training
from analysis.training import room
from analysis.training.run import Run
from analysis.training.settings import RouterTraining
from tests.made.tiny import VOCABULARY, tiny

PLAN = {"groups": 3, "window": 4, "steps": 2, "tokens_per_step": 48, "length": 24, "calibration_windows": 2}


def taken(tmp_path, free, monkeypatch, **plan):
    """Whether layers were computed again, losses, and the weights after two steps with so many bytes free."""
    monkeypatch.setattr(room, "free_bytes", lambda device: free)
    lm, ids = load_model(copy.deepcopy(tiny("llama")).double()), np.random.default_rng(0).integers(3, VOCABULARY, 400)
    plan = RouterTraining(**PLAN, check_windows=0, **plan)
    lm.lm.requires_grad_(plan.phase == 2)
    run = Run(lm, None, ids, plan, tmp_path / "none", None)
    losses = [run.step(step) for step in range(2)]
    return run.recompute, losses, [p.detach() for p in run.parameters.values()]


@pytest.mark.slow
@pytest.mark.parametrize("plan", [{}, {"phase": 2}, {"balance_weight": 0.1, "ema": 0.9}], ids=str)
def test_layers_computed_again_train_to_the_same_weights(tmp_path, monkeypatch, plan):
    needed = of_training(24, 8, 32, 48, 3, VOCABULARY, 0, again=True)
    plain = taken(tmp_path, 1e12, monkeypatch, **plan)
    again = taken(tmp_path, needed * 1.9, monkeypatch, **plan)
    assert (plain[0], again[0]) == (False, True)
    assert plain[1] == pytest.approx(again[1], rel=1e-12)
    for weights in zip(plain[2], again[2], strict=True):
        torch.testing.assert_close(*weights, rtol=1e-9, atol=1e-12)


def test_what_is_kept_for_the_way_back_is_less():
    lm, ids = load_model(tiny("llama")), torch.full((1, 64), 5)
    saved = {}
    for wanted in (False, True):
        sizes = []
        hooks = torch.autograd.graph.saved_tensors_hooks(
            lambda x, sizes=sizes: sizes.append(x.nbytes) or x, lambda x: x
        )
        with hooks, room.recomputed(lm, wanted):
            lm.lm(ids, use_cache=False)
        saved[wanted] = sum(sizes)
    assert saved[True] < saved[False] / 3 and all("forward" not in vars(layer) for layer in lm.lm.model.layers)


def test_a_step_that_cannot_fit_is_refused_with_what_fits(monkeypatch):
    lm = load_model(tiny("llama"))
    again = of_training(8192, 4, 32, 48, 3, VOCABULARY, 0, again=True)
    monkeypatch.setattr(room, "free_bytes", lambda device: again)
    with pytest.raises(TooLarge, match="8,192 tokens .* at most [0-9,]+ tokens"):
        room.recomputes(lm, 8192, 1)
    monkeypatch.setattr(room, "free_bytes", lambda device: again * 2)
    assert room.recomputes(lm, 8192, 1)
    monkeypatch.setattr(room, "free_bytes", lambda device: 1 << 20)
    with pytest.raises(TooLarge, match="phase 1"):
        room.recomputes(lm, 8192, 2)
