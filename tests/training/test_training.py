"""Training a router: the loss falls on every family, a stopped run ends as an unbroken one, the model stays whole."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from analysis.errors import AnalysisError, BadSetting, Cancelled
from analysis.methods.focus import Focus
from analysis.metrics.quality import perplexity
from analysis.models import load_model
from analysis.seam.attention import apply
from analysis.training import focus, run
from analysis.training.focus import train_router
from analysis.training.settings import RouterTraining
from tests.made.tiny import BY_KIND, tiny, token_ids

IDS = token_ids(1, 400, seed=5)[0].numpy()
PLAN = RouterTraining(
    groups=4, window=4, n_sink=0, steps=8, tokens_per_step=64, length=32, warm_up=2, calibration_windows=3
)


def state(model) -> dict:
    """Everything about a model that training must leave alone."""
    return {name: (value.clone(), value.requires_grad, value.grad) for name, value in model.lm.named_parameters()}


def same(before: dict, model) -> bool:
    return all(
        torch.equal(value, before[name][0]) and value.requires_grad == before[name][1] and value.grad is None
        for name, value in model.lm.named_parameters()
    )


def clean(model) -> bool:
    """No method is applied and no hook is left."""
    hooked = any(m._forward_pre_hooks or hasattr(m, "_focuscope") for m in model.lm.modules())
    return not hooked and "focuscope" not in model.lm.config._attn_implementation


@pytest.mark.parametrize("family", BY_KIND)
def test_the_loss_falls_and_every_parameter_learns(family, tmp_path):
    model, ids = load_model(tiny(family)), IDS[:65]  # one window fits, so every step sees the same batch
    before, seen = state(model), []
    plan = replace(PLAN, steps=20, length=64, rate=5e-3, calibration_windows=2)
    router, pooled, log = train_router(model, ids, plan, tmp_path / "c", lambda *told: seen.append(told))
    losses = [row["loss"] for row in log]
    assert len(losses) == 20 and losses[-1] < losses[0] - 1e-3 and min(losses[-5:]) < min(losses[:5])
    for layer in range(model.num_layers):
        assert router.projection.grad[layer].abs().max() > 0 and router.centroids.grad[layer].abs().max() > 0
    assert same(before, model) and clean(model)
    assert [x.shape for x in pooled] == [(128, model.width)] * 3 and router.potential.abs().max() > 0
    assert [row["step"] for row in log if "largest_share" in row] == [19]
    assert not any(p.requires_grad for p in router.parameters()) and len(seen) == 21 and seen[-1][0] == 1.0


def test_a_stopped_run_ends_as_an_unbroken_one_bit_for_bit(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "KEEP_EVERY", 3)
    model = load_model(tiny("llama"))
    whole, _, log = train_router(model, IDS, PLAN, tmp_path / "whole")

    def stop(fraction, stage):
        if fraction >= 5 / 8:
            raise Cancelled("enough")

    with pytest.raises(Cancelled, match="5 of 8 steps are kept: with the same settings it goes on at step 6"):
        train_router(model, IDS, PLAN, tmp_path / "stopped", stop)
    assert clean(model)
    steps = []
    resumed, _, again = train_router(model, IDS, PLAN, tmp_path / "stopped", lambda f, stage: steps.append(stage))
    assert "step 6 of 8" in steps[0], "all five steps that were done were kept"
    assert again == log
    assert all(torch.equal(value, whole.state_dict()[name]) for name, value in resumed.state_dict().items())
    once_more, _, _ = train_router(model, IDS, PLAN, tmp_path / "stopped", lambda f, stage: steps.append(stage))
    assert torch.equal(once_more.projection, whole.projection) and "freezing" in steps[-1]


def test_a_long_step_is_left_between_its_windows_and_slow_steps_are_kept_one_by_one(tmp_path, monkeypatch):
    model, rows, count = load_model(tiny("llama")), [], iter(range(100))

    def stop(fraction, stage):
        if next(count) == 5:  # between the two windows of step 3
            raise Cancelled("enough")

    with pytest.raises(Cancelled, match="2 of 8 steps are kept"):
        train_router(model, IDS, PLAN, tmp_path / "c", stop, watch=lambda log: rows.append(len(log)))
    assert rows == [0, 1, 2] and clean(model)
    monkeypatch.setattr(run, "PATIENCE", 0.0)
    monkeypatch.setattr(run, "WRITING", 0)
    kept, keep = [], run.Run._keep
    monkeypatch.setattr(run.Run, "_keep", lambda self: kept.append(len(self.log)) or keep(self))
    train_router(model, IDS, PLAN, tmp_path / "c")
    assert kept == [3, 4, 5, 6, 7, 8], "a process that dies loses one step"


def test_a_seed_decides_everything_and_another_seed_something(tmp_path):
    model = load_model(tiny("llama"))
    short = replace(PLAN, steps=2)
    routers = [train_router(model, IDS, replace(short, seed=s), tmp_path / str(i))[0] for i, s in enumerate((1, 1, 2))]
    assert torch.equal(routers[0].centroids, routers[1].centroids)
    assert not torch.equal(routers[0].centroids, routers[2].centroids)


def test_a_checkpoint_of_other_settings_another_model_or_damaged_is_refused(tmp_path):
    model, kept = load_model(tiny("llama")), tmp_path / "k4-top1.checkpoint"
    train_router(model, IDS, replace(PLAN, steps=1), kept)
    for plan in (replace(PLAN, steps=2), replace(PLAN, steps=1, rate=0.5)):
        with pytest.raises(BadSetting, match="k4-top1.checkpoint was made with another"):
            train_router(model, IDS, plan, kept)
    with pytest.raises(BadSetting, match="another model: delete it"):
        train_router(load_model(tiny("qwen2")), IDS, replace(PLAN, steps=1), kept)
    with pytest.raises(BadSetting, match="another corpus: delete it"):
        train_router(model, IDS[::-1].copy(), replace(PLAN, steps=1), kept)
    data = kept.read_bytes()
    for damage in (data[: len(data) // 2], b"", b"nonsense"):
        kept.write_bytes(damage)
        with pytest.raises(BadSetting, match="is damaged: delete it"):
            train_router(model, IDS, replace(PLAN, steps=1), kept)
    assert clean(model)


def test_a_loss_that_is_no_number_stops_and_keeps_the_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "KEEP_EVERY", 2)
    model, calls = load_model(tiny("llama")), []
    before, real = state(model), run.F.cross_entropy

    def broken(*args):
        calls.append(1)
        return real(*args) * (math.nan if len(calls) > 6 else 1.0)  # two in each step, one before what is kept

    monkeypatch.setattr(run.F, "cross_entropy", broken)
    with pytest.raises(AnalysisError, match=r"no number at step 3 of 8: the last checkpoint is kept, of step 2;"):
        train_router(model, IDS, PLAN, tmp_path / "kept")
    assert same(before, model) and clean(model)
    monkeypatch.setattr(run.F, "cross_entropy", real)
    steps = []
    _, _, log = train_router(model, IDS, PLAN, tmp_path / "kept", lambda f, stage: steps.append(stage))
    assert "step 3 of 8" in steps[0] and all(math.isfinite(row["loss"]) for row in log)


def test_progress_is_reported_while_nobody_else_is_disturbed(tmp_path):
    """Interactive requests run inside progress: the model must be the stock model there, and may be used."""
    model, stages = load_model(tiny("llama")), []
    ids = token_ids(1, 20)
    with torch.no_grad():
        stock = model.lm(ids).logits

    def progress(fraction, stage):
        assert clean(model) and 0 <= fraction <= 1
        with torch.no_grad():
            assert torch.equal(model.lm(ids).logits, stock)
        stages.append(stage)

    short = replace(PLAN, steps=3)
    disturbed, _, _ = train_router(model, IDS, short, tmp_path / "a", progress)
    alone, _, _ = train_router(model, IDS, short, tmp_path / "b")
    assert torch.equal(disturbed.projection, alone.projection)
    assert len(stages) == 2 * short.steps + 1, "a border before each of the two windows of a step"


@pytest.mark.parametrize("at", [0, 3, 2 * PLAN.steps])
def test_cancelling_leaves_the_model_as_it_came(at, tmp_path):
    model, count = load_model(tiny("gpt2")), iter(range(100))
    model.lm.lm_head.requires_grad_(False)  # part of it was frozen by its owner
    before = state(model)

    def progress(fraction, stage):
        if next(count) == at:
            raise Cancelled("enough")

    try:
        with pytest.raises(Cancelled):
            train_router(model, IDS, PLAN, tmp_path / "c", progress)
        assert same(before, model) and clean(model)
    finally:
        model.lm.requires_grad_(True)


def test_a_corpus_shorter_than_a_window_is_refused(tmp_path):
    model = load_model(tiny("llama"))
    for count in (0, 1, 32):
        with pytest.raises(BadSetting, match=f"has {count} tokens and one window needs 33"):
            train_router(model, IDS[:count], PLAN, tmp_path / "c")
    train_router(model, IDS[:33], replace(PLAN, steps=1), tmp_path / "c")
    assert not list(tmp_path.glob("*.part"))


def test_the_router_of_the_lowest_hard_loss_is_returned(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "CHECK_EVERY", 2)
    seen, told = [], iter([3.0, 1.0, 2.0, 1.5])

    def hard(model, ids, length):
        assert len(ids) == 32 and np.array_equal(ids, IDS[-32:]), "an eighth of the text, and not trained on"
        seen.append(model.projection.detach().clone())
        return SimpleNamespace(losses=np.array([next(told)]))

    class Spied(run.Run):
        def _check(self):
            monkeypatch.setattr(run, "perplexity", lambda model, *rest: hard(self.router, *rest))
            super()._check()

    monkeypatch.setattr(focus, "Run", Spied)
    router, _, log = train_router(load_model(tiny("llama")), IDS, PLAN, tmp_path / "c")
    assert [row["hard"] for row in log if "hard" in row] == [3.0, 1.0, 2.0, 1.5]
    assert torch.equal(router.projection, seen[1]) and not torch.equal(router.projection, seen[3])


def test_the_hard_loss_is_that_of_inference(tmp_path):
    model = load_model(tiny("llama"))
    router, pooled, log = train_router(model, IDS, replace(PLAN, steps=2), tmp_path / "c")
    with apply(model, Focus.build(router)):
        assert log[-1]["hard"] == pytest.approx(perplexity(model, IDS[-32:], 32).losses.mean(), abs=1e-5)


def test_the_gate_sharpens_at_the_end_and_the_router_keeps_its_own():
    plan = RouterTraining(steps=100)
    times = [plan.sharpening(step) for step in range(100)]
    assert times[:70] == [1.0] * 70 and times[-1] == pytest.approx(3.0) and np.all(np.diff(times[69:]) > 0)


def test_the_rate_warms_up_and_falls():
    plan = RouterTraining(steps=100, warm_up=10)
    rates = [plan.rate_at(step) for step in range(100)]
    assert rates[0] == 0.1 and rates[9] == 1.0 and rates[10] == 1.0 and 0.05 < rates[99] < 0.06
    assert np.all(np.diff(rates[10:]) < 0)
