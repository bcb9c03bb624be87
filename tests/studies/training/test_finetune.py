"""Phase 2: the copy learns, the model stays, the folder that comes out; and what a page sees of a training."""

import math
from dataclasses import replace

import pytest
import torch

from analysis.errors import AnalysisError, BadSetting, Cancelled
from analysis.groups.router import FocusRouter
from analysis.models import load_model
from analysis.studies import STUDIES
from analysis.studies.context import Context
from analysis.studies.training.train_router import curve
from analysis.training import run
from analysis.training.focus import finetune, train_router
from tests.made.studied import asker, studied_home
from tests.made.tiny import BY_KIND, tiny
from tests.made.tuning import IDS, SECOND, clean, equal_numbers, same, start, state, stop_at


@pytest.mark.slow
@pytest.mark.parametrize("family", BY_KIND)
def test_the_copy_and_its_router_learn_and_the_model_stays(family, tmp_path):
    model, ids = load_model(tiny(family)), IDS[:65]
    before, first = state(model), start()
    plan = replace(SECOND, steps=6, length=64, calibration_windows=2)
    copied, router, _, log = finetune(model, first, ids, plan, tmp_path / "c")
    losses = [row["loss"] for row in log]
    assert losses[-1] < losses[0] - 0.02 and same(before, model) and clean(copied) and equal_numbers(first, start())
    assert not torch.equal(router.projection, first.projection) and not torch.equal(router.centroids, first.centroids)
    moved = [not torch.equal(p, before[name][0]) for name, p in copied.lm.named_parameters()]
    assert all(moved) and not any(p.requires_grad for p in copied.lm.parameters())


@pytest.mark.slow
@pytest.mark.parametrize("gate", ["literal", "centred", "log"])
@pytest.mark.parametrize("phase", [1, 2])
def test_every_gate_trains_in_both_phases(gate, phase, tmp_path):
    model, plan = load_model(tiny("llama")), replace(SECOND, gate=gate, phase=phase, steps=3)
    if phase == 1:
        router, _, log = train_router(model, IDS, plan, tmp_path / "c")
    else:
        _, router, _, log = finetune(model, start().variant(gate=gate), IDS, plan, tmp_path / "c")
    assert all(math.isfinite(row["loss"]) for row in log) and router.settings.gate == gate
    assert router.centroids.grad.abs().amax((1, 2)).min() > 0 and router.projection.grad.abs().amax((1, 2)).min() > 0


@pytest.mark.parametrize("reading", ["hard", "drawn", "alone"])
def test_under_a_hard_mask_or_a_control_the_base_learns_and_the_router_stays(reading, tmp_path):
    """The controls: groups drawn anew, and a window alone."""
    model, first, plan = load_model(tiny("llama")), start(), replace(SECOND, reading=reading, steps=6, check_windows=2)
    copied, router, _, log = finetune(model, first, IDS, plan, tmp_path / "c")
    assert torch.equal(router.projection, first.projection) and torch.equal(router.centroids, first.centroids)
    assert log[-1]["loss"] < log[0]["loss"] and math.isfinite(log[-1]["hard"])
    assert (router.potential.abs().max() > 0) or reading != "hard"
    weights = zip(copied.lm.parameters(), model.lm.parameters(), strict=True)
    assert not any(torch.equal(ours, theirs) for ours, theirs in weights)


@pytest.mark.slow
@pytest.mark.parametrize("reading", ["soft", "hard", "drawn", "alone"])
def test_a_stopped_phase_2_ends_as_an_unbroken_one_bit_for_bit(reading, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "KEEP_EVERY", 3)
    model, plan = load_model(tiny("gpt2")), replace(SECOND, reading=reading)
    unbroken, router, _, log = finetune(model, start(), IDS, plan, tmp_path / "whole")
    with pytest.raises(Cancelled):
        finetune(model, start(), IDS, plan, tmp_path / "stopped", stop_at(5 / 8))
    stages = []
    copied, again, _, rows = finetune(model, start(), IDS, plan, tmp_path / "stopped", lambda f, s: stages.append(s))
    assert "step 6 of 8" in stages[0] and rows == log
    assert equal_numbers(router, again) and equal_numbers(copied.lm, unbroken.lm)


def test_rates_that_break_the_model_name_the_step_and_keep_the_last_state(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "KEEP_EVERY", 1)
    model = load_model(tiny("llama"))
    before, usual = state(model), torch.optim.AdamW.step

    def broken(self, *arguments):
        usual(self, *arguments)
        for group in self.param_groups:
            for p in group["params"]:
                p.data.mul_(math.inf if self.state[p]["step"] == 3 else 1)

    monkeypatch.setattr(torch.optim.AdamW, "step", broken)
    with pytest.raises(AnalysisError, match="no number at step 3 of 8: the last checkpoint is kept, of step 2;"):
        finetune(model, start(), IDS, SECOND, tmp_path / "c")
    assert same(before, model)
    monkeypatch.undo()
    _, router, _, log = finetune(model, start(), IDS, SECOND, tmp_path / "c")
    assert [row["step"] for row in log] == list(range(8)) and router.projection.isfinite().all()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return studied_home(tmp_path_factory.mktemp("finetune"))


@pytest.mark.slow
@pytest.mark.parametrize("reading", [pytest.param("soft", marks=pytest.mark.slow), "hard"])
def test_phase_2_leaves_a_model_folder_with_its_router(reading, home, tmp_path):
    sizes = {"corpus": str(home / "corpus"), "groups": 4, "window": 9, "tokens_per_step": 64, "phase": 2}
    ask = asker(STUDIES["train-router"], home, **sizes, steps=3, reading=reading, output=str(tmp_path / "tuned"))
    result = ask()
    numbers = result.numbers
    assert numbers["path"] == str(tmp_path / "tuned") and "--phase 2" in numbers["protocol"]["command"]
    tuned = load_model(numbers["path"])
    router = FocusRouter.load(tmp_path / "tuned" / "focus" / "k4-top1", tuned.num_layers, tuned.width)
    assert router.about["revision"] == tuned.revision == numbers["protocol"]["revision"]
    training = router.about["training"]
    assert training["reading"] == reading and router.about["kind"] == "trained"
    assert (training["window"], training["gate_sharpness"]) == (4, 20.0), "those of the router it began with"
    assert numbers["perplexity_before"] > 1 and numbers["perplexity_causal"] > 1
    assert result.tables["shares"]["step"].unique().tolist() == [0, 3] and len(result.tables["log"]) == 3
    again = asker(STUDIES["train-router"], home, **sizes, model=numbers["path"], steps=1, output=str(tmp_path / "more"))
    with pytest.raises(BadSetting, match="made for other weights"):
        again()


@pytest.mark.slow
def test_a_training_shows_its_curve_while_it_runs(home, tmp_path):
    curves = []
    context = Context(state=tmp_path, browser=False, show=curves.append, device="cpu")
    sizes = {"model": str(home / "tiny"), "corpus": str(home / "corpus"), "groups": 2, "tokens_per_step": 64}
    result = STUDIES["train-router"](**sizes, steps=3, output=str(tmp_path), context=context)
    assert [so_far["step"] for so_far in curves] == [[], [0], [0, 1]]
    latest = curves[-1]["looks"]
    first = result.tables["shares"].head(len(latest["step"]))
    assert latest["step"] and latest == {name: first[name].tolist() for name in ("step", "layer", "share")}
    assert curves[-1]["loss"] == result.tables["log"]["loss"].tolist()[:2]
    rows = [{"step": step, "loss": 1.0} | ({"hard": 2.0} if step % 100 == 99 else {}) for step in range(5000)]
    thin = curve(rows)
    assert len(thin["step"]) < 400 and sum(value is not None for value in thin["hard"]) == 50


def test_what_cannot_be_asked_for_is_refused(home):
    ask = asker(STUDIES["train-router"], home, corpus=str(home / "corpus"), groups=2, phase=2)
    with pytest.raises(BadSetting, match="'k2-top1' of .* is not trained and a trained one is needed"):
        ask()
    context = Context(state=home / "state")
    for wrong, message in (
        ({"corpus": "x", "output": "/x"}, "no folder can be"),
        ({"corpus": "/etc"}, "no corpus"),
    ):
        with pytest.raises(BadSetting, match=message):
            STUDIES["train-router"](model="demo", **wrong, context=context)
