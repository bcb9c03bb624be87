"""Phase 2 and the settings of training: the copy learns, the model stays, what cannot be trained is refused."""

import json
import math
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from analysis.errors import AnalysisError, BadSetting, Cancelled
from analysis.groups.router import FocusRouter
from analysis.models import load_model
from analysis.studies import STUDIES
from analysis.studies.context import Context
from analysis.studies.training.train_router import curve
from analysis.training import run
from analysis.training.focus import finetune, train_router
from analysis.training.settings import RouterTraining
from tests.made.studied import asker, studied_home
from tests.made.tiny import BY_KIND, LAYERS, WIDTH, tiny
from tests.training.test_training import IDS, PLAN, clean, same, state

SECOND = replace(PLAN, phase=2, base_rate=1e-3)


def start(seed=3) -> FocusRouter:
    """A router for the tiny models, balanced enough to begin with."""
    made = FocusRouter(LAYERS, WIDTH, PLAN.router_settings(), seed=seed)
    return made.scale_to([torch.randn(256, WIDTH, generator=torch.Generator().manual_seed(1)) for _ in range(LAYERS)])


@pytest.mark.parametrize("family", BY_KIND)
def test_the_copy_and_its_router_learn_and_the_model_stays(family, tmp_path):
    model, ids = load_model(tiny(family)), IDS[:65]
    before, given = state(model), start()
    kept = {name: value.clone() for name, value in given.state_dict().items()}
    plan = replace(SECOND, steps=6, length=64, calibration_windows=2)
    own, router, _, log = finetune(model, given, ids, plan, tmp_path / "c")
    losses = [row["loss"] for row in log]
    assert losses[-1] < losses[0] - 0.02 and same(before, model) and clean(model) and clean(own)
    assert all(torch.equal(value, kept[name]) for name, value in given.state_dict().items())
    assert not torch.equal(router.projection, given.projection) and not torch.equal(router.centroids, given.centroids)
    moved = [not torch.equal(p, before[name][0]) for name, p in own.lm.named_parameters()]
    assert all(moved) and not any(p.requires_grad for p in own.lm.parameters())


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


def test_under_the_hard_mask_the_base_learns_and_the_router_stays(tmp_path):
    model, given = load_model(tiny("llama")), start()
    plan = replace(SECOND, reading="hard", steps=6)
    own, router, _, log = finetune(model, given, IDS, plan, tmp_path / "c")
    assert torch.equal(router.projection, given.projection) and torch.equal(router.centroids, given.centroids)
    assert log[-1]["loss"] < log[0]["loss"] and router.potential.abs().max() > 0
    weights = zip(own.lm.parameters(), model.lm.parameters(), strict=True)
    assert not any(torch.equal(ours, theirs) for ours, theirs in weights)


@pytest.mark.parametrize("reading", ["soft", "hard"])
def test_a_stopped_phase_2_ends_as_an_unbroken_one_bit_for_bit(reading, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "KEEP_EVERY", 3)
    model, plan = load_model(tiny("gpt2")), replace(SECOND, reading=reading)

    def stop(fraction, stage):
        if fraction >= 5 / 8:
            raise Cancelled("enough")

    whole, router, _, log = finetune(model, start(), IDS, plan, tmp_path / "whole")
    with pytest.raises(Cancelled):
        finetune(model, start(), IDS, plan, tmp_path / "stopped", stop)
    stages = []
    own, again, _, rows = finetune(model, start(), IDS, plan, tmp_path / "stopped", lambda f, s: stages.append(s))
    assert "step 6 of 8" in stages[0] and rows == log
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in router.state_dict().items())
    assert all(torch.equal(a, b) for a, b in zip(own.lm.parameters(), whole.lm.parameters(), strict=True))


@pytest.mark.parametrize("settings", [{"ema": 0.9}, {"recluster_every": 4}, {"balance": "softmax", "detach": True}])
def test_what_table_8_tries_resumes_too(settings, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "KEEP_EVERY", 3)
    model, plan = load_model(tiny("llama")), replace(PLAN, **settings)

    def stop(fraction, stage):
        if fraction >= 5 / 8:
            raise Cancelled("enough")

    whole, _, log = train_router(model, IDS, plan, tmp_path / "whole")
    with pytest.raises(Cancelled):
        train_router(model, IDS, plan, tmp_path / "stopped", stop)
    again, _, rows = train_router(model, IDS, plan, tmp_path / "stopped")
    assert rows == log and all(torch.equal(v, whole.state_dict()[n]) for n, v in again.state_dict().items())
    assert (whole.potential.abs().max() > 0) == (plan.balance == "sinkhorn")


def test_looks_say_how_large_the_groups_are_and_how_many_tokens_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "KEEP_EVERY", 2)
    told, model = [], load_model(tiny("llama"))
    router, _, log = train_router(
        model, IDS, PLAN, tmp_path / "c", lambda f, stage: told.append(stage), lambda *given: {"seen": len(given)}
    )
    looks = [row for row in log if "shares" in row]
    assert [row["step"] for row in looks] == [1, 3, 5, 7] and log[0]["start"]["stability"] == 1.0
    for row in (log[0]["start"], *looks):
        assert len(row["shares"]) == LAYERS and row["largest_share"] == max(row["shares"]) and row["seen"] == 4
        assert 0.25 <= row["largest_share"] <= 1 and 0 <= row["stability"] <= 1
    assert told[0] == "router, step 1 of 8" and told[4].startswith("router, step 3 of 8: loss ")
    assert f"largest {looks[0]['largest_share']:.0%}, {looks[0]['stability']:.0%} stay" in told[4]
    json.dumps(log, allow_nan=False)


REFUSED = {
    "a temperature of 0": ({"temperature": 0.0}, "temperature must be above 0, and it is 0.0"),
    "more groups than a step has tokens": ({"groups": 40}, "40 groups are balanced over .* it has 32"),
    "an unknown gate": ({"gate": "soft"}, "'soft' is unknown; the forms are literal, centred, log"),
    "an unknown balance": ({"balance": "none"}, "'none' and must be one of sinkhorn, softmax"),
    "a third phase": ({"phase": 3}, "phase is 3 and must be one of 1, 2"),
    "a hard mask for the router": ({"reading": "hard"}, "hard mask gives the router no gradient"),
    "no steps": ({"steps": 0}, "got 0 steps"),
    "a rate that is none": ({"base_rate": math.nan}, "base model nan"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_trained_is_refused_in_a_sentence(case):
    given, said = REFUSED[case]
    with pytest.raises(BadSetting, match=said):
        replace(PLAN, **given)


def test_groups_beyond_the_models_context_are_refused(tmp_path):
    model = load_model(tiny("llama"))
    model = replace(model, max_positions=16)
    with pytest.raises(BadSetting, match="20 groups cannot share the 16 tokens of a sequence"):
        train_router(model, IDS, RouterTraining(groups=20), tmp_path / "c")


def test_rates_that_break_the_model_name_the_step_and_keep_the_last_state(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "KEEP_EVERY", 1)
    model = load_model(tiny("llama"))
    before, real = state(model), torch.optim.AdamW.step

    def broken(self, *args):
        real(self, *args)
        for group in self.param_groups:
            for p in group["params"]:
                p.data.mul_(math.inf if self.state[p]["step"] == 3 else 1)

    monkeypatch.setattr(torch.optim.AdamW, "step", broken)
    with pytest.raises(AnalysisError, match="no number at step 3 of 8: the last checkpoint is kept, of step 2;"):
        finetune(model, start(), IDS, SECOND, tmp_path / "c")
    assert same(before, model) and clean(model)
    monkeypatch.undo()
    _, router, _, log = finetune(model, start(), IDS, SECOND, tmp_path / "c")
    assert [row["step"] for row in log] == list(range(8)) and router.projection.isfinite().all()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return studied_home(tmp_path_factory.mktemp("finetune"))


@pytest.mark.parametrize("reading", [pytest.param("soft", marks=pytest.mark.slow), "hard"])
def test_phase_2_leaves_a_model_folder_with_its_router(reading, home, tmp_path):
    given = {"corpus": str(home / "corpus"), "groups": 4, "window": 9, "tokens_per_step": 64, "phase": 2}
    ask = asker(STUDIES["train-router"], home, **given, steps=3, reading=reading, output=str(tmp_path / "tuned"))
    result = ask()
    numbers = result.numbers
    assert numbers["path"] == str(tmp_path / "tuned") and "--phase 2" in numbers["protocol"]["command"]
    tuned = load_model(numbers["path"])
    router = FocusRouter.load(tmp_path / "tuned" / "focus" / "k4-top1", tuned.num_layers, tuned.width)
    assert router.about["revision"] == tuned.revision == numbers["protocol"]["revision"]
    told = router.about["training"]
    assert told["reading"] == reading and router.about["kind"] == "trained"
    assert (told["window"], told["gate_sharpness"]) == (4, 20.0), "those of the router it began with"
    assert numbers["perplexity_before"] > 1 and numbers["perplexity_causal"] > 1
    assert result.tables["shares"]["step"].unique().tolist() == [0, 3] and len(result.tables["log"]) == 3
    again = asker(STUDIES["train-router"], home, **given, model=numbers["path"], steps=1, output=str(tmp_path / "more"))
    with pytest.raises(BadSetting, match="made for other weights"):
        again()


@pytest.mark.slow
def test_a_training_shows_its_curve_while_it_runs(home, tmp_path):
    shown = []
    context = Context(state=tmp_path, browser=False, show=shown.append, device="cpu")
    given = {"model": str(home / "tiny"), "corpus": str(home / "corpus"), "groups": 2, "tokens_per_step": 64}
    made = STUDIES["train-router"](**given, steps=3, output=str(tmp_path), context=context)
    assert [so_far["step"] for so_far in shown] == [[], [0], [0, 1]]
    assert shown[-1]["loss"] == made.tables["log"]["loss"].tolist()[:2]
    rows = [{"step": step, "loss": 1.0} | ({"hard": 2.0} if step % 100 == 99 else {}) for step in range(5000)]
    thin = curve(rows)
    assert len(thin["step"]) < 400 and sum(value is not None for value in thin["hard"]) == 50


def test_phase_2_needs_a_trained_router(home):
    ask = asker(STUDIES["train-router"], home, corpus=str(home / "corpus"), groups=2, phase=2)
    with pytest.raises(BadSetting, match="'k2-top1' of .* is not trained and a trained one is needed"):
        ask()


@pytest.mark.slow
def test_two_processes_do_what_one_does(home, tmp_path):
    given = {
        "model": str(home / "tiny"),
        "corpus": str(home / "corpus"),
        "steps": 3,
        "groups": 4,
        "tokens_per_step": 256,
    }
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", 2, "-m", "analysis", "train-router"]
    command += [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", value)]
    command += ["--state", tmp_path, "--device", "cpu", "--json", "-o", tmp_path / "two"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(done.stdout.splitlines()) == 1, "the first process speaks for all"
    context = Context(state=tmp_path, browser=False, device="cpu")
    STUDIES["train-router"](**given, output=str(tmp_path / "one"), context=context)
    one, two = (load_file(tmp_path / name / "k4-top1.safetensors") for name in ("one", "two"))
    assert all(torch.allclose(one[name], two[name], atol=1e-5) for name in one)
