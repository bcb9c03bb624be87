"""Training a router: the loss falls on every family, a stopped run ends as an unbroken one, the model stays whole."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from analysis.errors import AnalysisError, BadSetting, Cancelled
from analysis.groups.router import FocusRouter
from analysis.methods.focus import Focus
from analysis.metrics.quality import perplexity
from analysis.models import load_model
from analysis.seam.attention import apply
from analysis.training import focus, run
from analysis.training.focus import train_router
from analysis.training.settings import RouterTraining
from tests.made.tiny import BY_KIND, LAYERS, tiny, token_ids
from tests.made.tuning import IDS, PLAN, clean, equal_numbers, same, state, stop_at


@pytest.mark.slow
@pytest.mark.parametrize("family", BY_KIND)
def test_the_loss_falls_and_every_parameter_learns(family, tmp_path):
    # One window fits, so every step sees the same batch.
    model, ids = load_model(tiny(family)), IDS[:65]
    before, stages = state(model), []
    plan = replace(PLAN, steps=20, length=64, rate=5e-3, calibration_windows=2)
    router, pooled, log = train_router(model, ids, plan, tmp_path / "c", lambda *progress: stages.append(progress))
    losses = [row["loss"] for row in log]
    assert len(losses) == 20 and losses[-1] < losses[0] - 1e-3 and min(losses[-5:]) < min(losses[:5])
    for layer in range(model.num_layers):
        assert router.projection.grad[layer].abs().max() > 0 and router.centroids.grad[layer].abs().max() > 0
    assert same(before, model)
    assert [x.shape for x in pooled] == [(128, model.width)] * 3 and router.potential.abs().max() > 0
    assert [row["step"] for row in log if "largest_share" in row] == [19]
    assert not any(p.requires_grad for p in router.parameters()) and len(stages) == 21 and stages[-1][0] == 1.0


def test_layers_without_groups_learn_nothing_and_are_not_looked_at(tmp_path):
    model, plan = load_model(tiny("llama")), replace(PLAN, grouped_layers=[1])
    router, _, log = train_router(model, IDS, plan, tmp_path / "c")
    start = FocusRouter(model.num_layers, model.width, plan.router_settings(), seed=plan.seed)
    assert (router.projection != start.projection).flatten(1).any(1).tolist() == [False, True, False]
    assert [share is None for share in log[-1]["shares"]] == [True, False, True]
    assert log[-1]["largest_share"] == log[-1]["shares"][1] and router.grouped == [1]


TABLE_8 = {"ema": {"ema": 0.9}, "k-means": {"recluster_every": 4}, "softmax": {"balance": "softmax", "detach": True}}


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, *TABLE_8.values()], ids=["plain", *TABLE_8])
def test_a_stopped_run_ends_as_an_unbroken_one_bit_for_bit(settings, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "KEEP_EVERY", 3)
    model, plan = load_model(tiny("llama")), replace(PLAN, **settings)
    unbroken, _, log = train_router(model, IDS, plan, tmp_path / "whole")
    with pytest.raises(Cancelled, match="5 of 8 steps are kept: with the same settings it goes on at step 6"):
        train_router(model, IDS, plan, tmp_path / "stopped", stop_at(5 / 8))
    assert clean(model)
    stages = []
    resumed, _, again = train_router(model, IDS, plan, tmp_path / "stopped", lambda f, stage: stages.append(stage))
    assert "step 6 of 8" in stages[0], "all five steps that were done were kept"
    assert again == log and equal_numbers(unbroken, resumed)
    assert (unbroken.potential.abs().max() > 0) == (plan.balance == "sinkhorn")
    once_more, _, _ = train_router(model, IDS, plan, tmp_path / "stopped", lambda f, stage: stages.append(stage))
    assert torch.equal(once_more.projection, unbroken.projection) and "freezing" in stages[-1]


def test_clusters_are_set_anew_every_so_many_steps_and_not_after_the_last(tmp_path, monkeypatch):
    model, steps, after = load_model(tiny("llama")), [], []
    monkeypatch.setattr(run, "recluster", lambda router, inputs, seed: after.append(len(steps)))
    plan = replace(PLAN, **TABLE_8["k-means"])
    train_router(model, IDS, plan, tmp_path / "c", watch=lambda log: steps.append(len(log)))
    assert plan.steps == 2 * plan.recluster_every == 8 and after == [4]


def test_a_long_step_is_left_between_its_windows_and_slow_steps_are_kept_one_by_one(tmp_path, monkeypatch):
    model, rows, count = load_model(tiny("llama")), [], iter(range(100))

    def stop(fraction, stage):
        # Between the two windows of step 3.
        if next(count) == 5:
            raise Cancelled("enough")

    with pytest.raises(Cancelled, match="2 of 8 steps are kept"):
        train_router(model, IDS, PLAN, tmp_path / "c", stop, watch=lambda log: rows.append(len(log)))
    assert rows == [0, 1, 2] and clean(model)
    monkeypatch.setattr(run, "PATIENCE", 0.0)
    monkeypatch.setattr(run, "WRITING", 0)
    written, keep = [], run.Run._keep
    monkeypatch.setattr(run.Run, "_keep", lambda self: written.append(len(self.log)) or keep(self))
    train_router(model, IDS, PLAN, tmp_path / "c")
    assert written == [3, 4, 5, 6, 7, 8], "a process that dies loses one step"


def test_a_seed_decides_everything_and_the_hard_loss_is_that_of_inference(tmp_path):
    model = load_model(tiny("llama"))
    plans = [replace(PLAN, steps=2, seed=seed) for seed in (1, 1, 2)]
    routers = [train_router(model, IDS, plan, tmp_path / str(i))[0] for i, plan in enumerate(plans)]
    assert torch.equal(routers[0].centroids, routers[1].centroids)
    assert not torch.equal(routers[0].centroids, routers[2].centroids)
    model = load_model(tiny("llama"))
    router, _, log = train_router(model, IDS, replace(PLAN, steps=2), tmp_path / "c")
    with apply(model, Focus.build(router)):
        assert log[-1]["hard"] == pytest.approx(perplexity(model, IDS[-32:], 32).losses.mean(), abs=1e-5)


def test_every_seed_reads_windows_of_its_own(tmp_path, monkeypatch):
    """Where seed and step were added, a seed read the windows of the one before, a step later."""
    ids, measured, read = np.random.default_rng(0).integers(0, 90, 10**6), run.window_loss, {}
    for seed in range(3):
        windows: list[bytes] = []
        monkeypatch.setattr(
            run, "window_loss", lambda lm, ids, to=windows: to.append(ids.tobytes()) or measured(lm, ids)
        )
        plan = replace(PLAN, steps=4, seed=seed, check_windows=0)
        train_router(load_model(tiny("llama")), ids, plan, tmp_path / str(seed))
        read[seed] = set(windows)
    assert all(len(windows) >= 5 for windows in read.values()), "of every step, and one that says whether all is sound"
    assert not (read[0] & read[1] or read[0] & read[2] or read[1] & read[2])


def test_a_checkpoint_of_other_settings_another_model_or_damaged_is_refused(tmp_path):
    model, place, one_step = load_model(tiny("llama")), tmp_path / "k4-top1.checkpoint", replace(PLAN, steps=1)
    train_router(model, IDS, one_step, place)
    for trained_model, ids, plan, setting in (
        (model, IDS, replace(PLAN, steps=2), "steps"),
        (model, IDS, replace(one_step, rate=0.5), "rate"),
        (load_model(tiny("qwen2")), IDS, one_step, "model"),
        (model, IDS[::-1].copy(), one_step, "corpus"),
    ):
        with pytest.raises(BadSetting, match=f"k4-top1.checkpoint was made with another {setting}: delete it"):
            train_router(trained_model, ids, plan, place)
    data = place.read_bytes()
    for damage in (data[: len(data) // 2], b"", b"nonsense"):
        place.write_bytes(damage)
        with pytest.raises(BadSetting, match="is damaged: delete it"):
            train_router(model, IDS, one_step, place)
    assert clean(model)


def test_a_loss_that_is_no_number_stops_and_keeps_the_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "KEEP_EVERY", 2)
    model, calls = load_model(tiny("llama")), []
    before, usual = state(model), run.window_loss

    def broken(*arguments):
        calls.append(1)
        # Two in each step, one before what is kept.
        return usual(*arguments) * (math.nan if len(calls) > 6 else 1.0)

    monkeypatch.setattr(run, "window_loss", broken)
    with pytest.raises(AnalysisError, match=r"no number at step 3 of 8: the last checkpoint is kept, of step 2;"):
        train_router(model, IDS, PLAN, tmp_path / "kept")
    assert same(before, model)
    monkeypatch.setattr(run, "window_loss", usual)
    stages = []
    _, _, log = train_router(model, IDS, PLAN, tmp_path / "kept", lambda f, stage: stages.append(stage))
    assert "step 3 of 8" in stages[0] and all(math.isfinite(row["loss"]) for row in log)


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


@pytest.mark.slow
@pytest.mark.parametrize("cancelled_at", [0, 3, 2 * PLAN.steps])
def test_cancelling_leaves_the_model_as_it_came(cancelled_at, tmp_path):
    model, count = load_model(tiny("gpt2")), iter(range(100))
    # Part of it was frozen by its owner.
    model.lm.lm_head.requires_grad_(False)
    before = state(model)

    def progress(fraction, stage):
        if next(count) == cancelled_at:
            raise Cancelled("enough")

    try:
        with pytest.raises(Cancelled):
            train_router(model, IDS, PLAN, tmp_path / "c", progress)
        assert same(before, model)
    finally:
        model.lm.requires_grad_(True)


def test_texts_and_contexts_that_are_too_short_are_refused(tmp_path):
    model = load_model(tiny("llama"))
    for count in (0, 1, 32):
        with pytest.raises(BadSetting, match=f"has {count} tokens and one window needs 33"):
            train_router(model, IDS[:count], PLAN, tmp_path / "c")
    train_router(model, IDS[:33], replace(PLAN, steps=1), tmp_path / "c")
    assert not list(tmp_path.glob("*.part"))
    with pytest.raises(BadSetting, match="20 groups cannot share the 16 tokens of a sequence"):
        train_router(replace(model, max_positions=16), IDS, RouterTraining(groups=20), tmp_path / "c")


def test_the_router_of_the_lowest_hard_loss_is_returned(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "CHECK_EVERY", 2)
    projections, losses = [], iter([3.0, 1.0, 2.0, 1.5])

    class Spied(run.Run):
        def _check(self):
            def hard(model, ids, length):
                assert np.array_equal(ids, IDS[-32:]), "an eighth of the text, and not trained on"
                projections.append(self.router.projection.detach().clone())
                return SimpleNamespace(losses=np.array([next(losses)]))

            monkeypatch.setattr(run, "perplexity", hard)
            super()._check()

    monkeypatch.setattr(focus, "Run", Spied)
    router, _, log = train_router(load_model(tiny("llama")), IDS, PLAN, tmp_path / "c")
    assert [row["hard"] for row in log if "hard" in row] == [3.0, 1.0, 2.0, 1.5]
    assert torch.equal(router.projection, projections[1]) and not torch.equal(router.projection, projections[3])


def test_looks_say_how_large_the_groups_are_and_how_many_tokens_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "KEEP_EVERY", 2)
    stages, model = [], load_model(tiny("llama"))
    _, _, log = train_router(
        model,
        IDS,
        PLAN,
        tmp_path / "c",
        lambda f, stage: stages.append(stage),
        lambda *arguments: {"seen": len(arguments)},
    )
    looks = [row for row in log if "shares" in row]
    assert [row["step"] for row in looks] == [1, 3, 5, 7] and log[0]["start"]["stability"] == 1.0
    for row in (log[0]["start"], *looks):
        assert len(row["shares"]) == LAYERS and row["largest_share"] == max(row["shares"]) and row["seen"] == 4
        assert 0.25 <= row["largest_share"] <= 1 and 0 <= row["stability"] <= 1
    assert stages[0] == "router, step 1 of 8" and stages[4].startswith("router, step 3 of 8: loss ")
    assert f"largest {looks[0]['largest_share']:.0%}, {looks[0]['stability']:.0%} stay" in stages[4]
    json.dumps(log, allow_nan=False)


def test_the_gate_sharpens_at_the_end_and_the_rate_warms_up_and_falls():
    plan = RouterTraining(steps=100, warm_up=10)
    times = [plan.sharpening(step) for step in range(100)]
    assert times[:70] == [1.0] * 70 and times[-1] == pytest.approx(3.0) and np.all(np.diff(times[69:]) > 0)
    rates = [plan.rate_at(step) for step in range(100)]
    assert rates[0] == 0.1 and rates[9] == 1.0 and rates[10] == 1.0 and 0.05 < rates[99] < 0.06
    assert np.all(np.diff(rates[10:]) < 0)


REFUSED = {
    "temperature": 0.0,
    "groups": 40,
    "gate": "soft",
    "balance": "none",
    "phase": 3,
    "reading": "hard",
    "steps": 0,
    "base_rate": 2.0,
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_trained_is_refused(name):
    with pytest.raises(BadSetting):
        replace(PLAN, **{name: REFUSED[name]})
