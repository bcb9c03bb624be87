"""What the studies of Focal Attention train and store of a tiny model, and how a stopped training goes on."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from analysis import places
from analysis.errors import BadSetting, Cancelled
from analysis.models import load_model
from analysis.studies.text.held_out import spread_windows
from analysis.training.extend import Extension, extend
from analysis.training.pretrain import build_model
from lab.focal import arms
from lab.focal.arms import ArmTrainer
from lab.focal.length_extension import WAYS, _rows
from lab.focal.temperatures import ARMS
from tests.lab.cases import quiet


def test_temperatures_are_trained_and_what_two_studies_share_once(stored, folder_of, home):
    study = stored("focal-temperatures")
    rows = {row["arm"]: row for row in study["rows"]}
    assert list(rows)[:3] == ["dense", "t 0.4", "learned"] and len(rows) == 9
    literal = [row for name, row in rows.items() if "literal" in name]
    assert literal[0]["loss"] != literal[1]["loss"] != rows["learned"]["loss"], "trained with it, read with both"
    assert rows["dense"]["tokens"] == 40 * 64 and rows["t 0.4, adapted"]["tokens"] == (40 + 5) * 64
    assert 5 / 11.4 < rows["learned"]["temperature"] <= 10 / 11.3 and rows["dense"]["temperature"] is None
    assert rows["dense, no norm"]["gains"] is None and rows["dense"]["gains"] > 0
    curve = [point["loss"] for point in study["curves"] if (point["arm"], point["seed"]) == ("t 0.4", 0)]
    assert curve[-1] < curve[0] and study["protocol"]["training_tokens"] == 2560
    learned = next(row for row in stored("focal-temperatures")["rows"] if row["arm"] == "learned")
    limits = stored("focal-limits")["rows"]
    assert limits[1]["loss"] == learned["loss"]
    shared = list((home.parent / "lab-work-focal").glob("focal-*.safetensors"))
    assert len(shared) == 4, "weights of dense training with and without the norm, of each seed: others begin there"


def test_scaling_reads_every_model_at_four_shares(stored):
    study = stored("focal-scaling")
    assert [row["context"] for row in study["rows"]] == [32] * 3 + [16] * 3 + [64] * 3
    assert sorted({row["tokens"] for row in study["points"]}) == [64, 128, 192, 256]
    assert study["parameters"] == [] and len(study["tokens"]) == 2


def trainer_of(lm, windows, work, longer=None, steps=8) -> ArmTrainer:
    about = {"lm": lm, "documents": [], "work": work, "context": None, "expected": 1, "units": np.arange(len(windows))}
    return ArmTrainer(**about, windows=windows, longer=longer, steps=steps, tokens_per_step=64)


def test_no_window_joins_two_places_of_the_text(tmp_path):
    """A text of numbers that rise by one: so do those of every window, whatever the context."""
    lm = SimpleNamespace(tokenizer=None, revision="")
    short, longer = (spread_windows(np.arange(1000), size, 256 // size).reshape(-1, size) for size in (32, 64))
    trainer = trainer_of(lm, short, tmp_path, longer=(longer, np.arange(len(longer))), steps=8)
    for context in (16, 32, 64):
        read, documents = trainer.read_by(arms.Arm("dense", context=context))
        assert (np.diff(read, axis=1) == 1).all() and read.size == 256 and read.shape == (256 // context, context)
        assert (np.bincount(documents) == max(1, 32 // context)).all(), "halves of a window are of its document"


def test_adapted_models_read_other_texts_and_know_how_long_their_base_was_trained(tmp_path):
    lm, ids = SimpleNamespace(tokenizer=None, revision=""), np.zeros((2, 32), np.int64)
    adapted = arms.Arm("dense, further", further=True)
    recipes, places = [], []
    for steps in (80, 84):
        trainer = trainer_of(lm, ids, tmp_path, steps=steps)
        recipes.append(trainer.recipe(adapted, 0))
        places.append(trainer.place(adapted, recipes[-1]))
    assert recipes[0] == recipes[1] and places[0] != places[1]
    assert recipes[0].seed != trainer.recipe(arms.Arm("dense"), 0).seed


def test_a_training_that_was_stopped_inside_goes_on(ask, tmp_path, monkeypatch):
    arguments = {"rows": "5-10", "seeds": 2}
    straight = ask("focal-limits", work=str(tmp_path / "a"), **arguments).numbers["rows"]
    monkeypatch.setattr(arms, "CHECKPOINT_SECONDS", 0.0)

    def stop(fraction, stage):
        if fraction > 0.7:
            raise Cancelled("enough")

    with pytest.raises(Cancelled):
        ask("focal-limits", stop, work=str(tmp_path / "b"), **arguments)
    assert list((tmp_path / "b").glob("*/checkpoint.safetensors"))
    assert ask("focal-limits", work=str(tmp_path / "b"), **arguments).numbers["rows"] == straight


def test_one_model_code_with_and_without_the_norm():
    recipe = arms.Arm("dense").recipe(8, 64, 32, 0)
    normed, plain = (build_model(replace(recipe, family=family), 300) for family in ("llama", "llama_plain"))
    shared = dict(plain.named_parameters())
    assert {name for name, _ in normed.named_parameters()} - set(shared) == {
        f"model.layers.{layer}.self_attn.{side}_norm.weight" for layer in range(4) for side in "qk"
    }
    assert all(torch.equal(p, dict(normed.named_parameters())[name]) for name, p in shared.items()), "one start"
    assert arms.gains(normed) == 1 and arms.gains(plain) is None


def test_printed_arms_are_trained_as_sections_3_1_and_3_2_say(ask, tmp_path):
    """Normalised queries and keys, AdamW, weight decay 0.05, 2% of warm-up and a cosine to 10%; they are held against
    dense training by AdamW, and no constant temperature is chosen among them."""
    for arm in ARMS["printed"]:
        recipe = arm.recipe(500, 2048, 512, 0)
        about = (recipe.optimiser, recipe.family, recipe.weight_decay, recipe.warm_up, recipe.rate(499), recipe.rate(9))
        assert about == ("adamw", "llama", 0.05, 10, pytest.approx(0.1, abs=1e-4), 1)
    numbers = ask("focal-temperatures", rows="dense,printed", work=str(tmp_path)).numbers
    rows = {row["arm"]: row for row in numbers["rows"]}
    by_muon, by_adamw = rows["dense"], rows["dense, AdamW"]
    assert not numbers["selected"]
    assert [panel["title"] for panel in numbers["panels"]][:1] == ["By temperature (figure 8a)"]
    assert numbers["panels"][0]["x_values"] == [1.0]
    assert by_adamw["loss"] != by_muon["loss"] and by_adamw["against_dense"] == by_muon["against_dense"] == 0
    for name in ("t 0.4, AdamW", "learned, AdamW"):
        assert rows[name]["against_dense"] == pytest.approx(rows[name]["loss"] - by_adamw["loss"])


def test_both_copies_are_asked_as_they_were_trained(stored):
    study = stored("focal-tasks")
    untrained, dense, sharp = study["texts"]
    assert [row["model"] for row in study["texts"]] == ["as it is", "dense, further", "t 0.4, further"]
    assert dense["perplexity"] < untrained["perplexity"] and dense["against_dense"] == 0 != sharp["against_dense"]
    tasks = {row["task"] for row in study["rows"]}
    assert {"Several needles", "Needle"} <= tasks and len(study["rows"]) == 3 * len(tasks)
    for row in study["rows"]:
        assert row["items"] == 2 and row["chance"] == 0.25 and 0 <= row["score"] <= 1
        assert row["model"] != "dense, further" or row["against_dense"] == 0
        assert row["against_dense_low"] <= row["against_dense"] <= row["against_dense_high"]
    assert {row["length"] for row in study["cells"]} == {256} and len(study["panels"]) == len(tasks)


def test_copies_stay_as_models_that_learned(ask, home, tmp_path, monkeypatch):
    monkeypatch.setattr(places, "CACHE", tmp_path / "cache")
    numbers = ask("focal-tasks", keep=True, temperature=0.5).numbers
    folders = {json.loads((path / "about.json").read_text())["way"]: path for path in places.CACHE.glob("finetuned/*")}
    assert set(folders) == {"dense, further", "t 0.5, further"} == {row["model"] for row in numbers["texts"][1:]}
    model = load_model(str(home / "long"))
    for folder in folders.values():
        copy = load_model(f"finetuned/{folder.name}")
        moved = [(a - b).abs().max() for a, b in zip(copy.lm.parameters(), model.lm.parameters(), strict=True)]
        assert max(moved) > 1e-3


# --- reading twice the context --------------------------------------------------------------------------------------


def test_training_lowers_the_loss_of_a_copy_and_leaves_the_model_alone(home, tmp_path):
    model = load_model(str(home / "tiny"))
    before = {name: p.clone() for name, p in model.lm.named_parameters()}
    plan = Extension(128, 500_000.0, steps=12, tokens_per_step=256, rate=1e-2, warm_up=1)
    copy, losses = extend(model, np.tile(np.arange(10, 60), 40), plan, tmp_path / "a.safetensors", quiet)
    assert losses[-1] < losses[0] - 0.5 and len(losses) == 12
    assert all(torch.equal(p, before[name]) for name, p in model.lm.named_parameters())
    assert not any(torch.equal(p, before[name]) for name, p in copy.lm.named_parameters())
    assert model.lm.model.rotary_emb.inv_freq[1] == copy.lm.model.rotary_emb.inv_freq[1] > 500_000 ** (-2 / 8)
    with pytest.raises(BadSetting, match="two sequences need 256"):
        extend(model, np.arange(100), Extension(128), tmp_path / "x.safetensors", quiet)


def test_a_stopped_run_goes_on_to_the_same_weights(home, tmp_path):
    model = load_model(str(home / "tiny"))
    ids, plan = np.arange(5000) % 250, Extension(128, None, steps=12, tokens_per_step=128, rate=1e-3)
    straight, losses = extend(model, ids, plan, tmp_path / "whole.safetensors", quiet)

    def stops(fraction, stage):
        if stage.startswith("model, step 12"):
            raise Cancelled("stopped")

    place = tmp_path / "part.safetensors"
    with pytest.raises(Cancelled):
        extend(model, ids, plan, place, stops)
    stages: list[str] = []
    again, resumed = extend(model, ids, plan, place, lambda fraction, stage: stages.append(stage))
    assert len(stages) == 2 and resumed == pytest.approx(losses)
    for (_, a), (_, b) in zip(straight.lm.named_parameters(), again.lm.named_parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-6)
    with pytest.raises(BadSetting, match="made with another rate"):
        extend(model, ids, replace(plan, rate=2e-3), place, quiet)


def test_lengths_are_compared_on_the_same_tokens(stored):
    study = stored("length-extension")
    assert [row["way"] for row in study["rows"]] == list(WAYS) and study["rows"][0]["against_own"] == 0
    by_position, by_step = study["panels"]
    assert by_position["x_values"] == [1 + 15 * block for block in range(8)] and len(by_position["series"]) == len(WAYS)
    assert by_step["x_values"] == [1, 2] and len(by_step["series"]) == 2
    # Token by token the long window is 0.5 nats lower where it has the far context, and 9 worse before.
    of_token = np.arange(128.0)
    losses = {name: np.tile(of_token[1:] + np.where(of_token[1:] < 96, 9.0, -0.5), (16, 1)) for name in WAYS}
    alone = {name: np.tile(of_token[65:], (16, 1)) for name in WAYS}
    assert [row["against_alone"] for row in _rows(losses, alone, 64, np.arange(16))] == [-0.5] * len(WAYS)


def test_every_way_is_read_and_trained_with_a_temperature_as_well(ask, stored):
    """The dense rows stay as they are; the first step of a copy at a temperature has the loss that it reads with."""
    plain, sharp = stored("length-extension"), ask("length-extension", temperature=0.4).numbers
    names = list(WAYS) + [f"{name}, t = 0.4" for name in WAYS]
    assert [row["way"] for row in sharp["rows"]] == names
    for row, wanted in zip(sharp["rows"], plain["rows"], strict=False):
        assert row["within"] == pytest.approx(wanted["within"], abs=1e-5), row["way"]
    rows = {row["way"]: row for row in sharp["rows"]}
    for way in WAYS:
        assert abs(rows[f"{way}, t = 0.4"]["within"] - rows[way]["within"]) > 1e-6, way
    curves = sharp["curves"]
    assert curves["base 500,000, fine-tuned, t = 0.4"][0] != curves["base 500,000, fine-tuned"][0]
    assert rows["own positions, t = 0.4"]["against_alone"] != 0, "its second half alone is read with it too"


def test_far_context_is_told_apart_from_more_training():
    """Training takes a nat off everything and makes no use of what is far: that is no help of the far context."""
    plain = np.full((16, 127), 3.0)
    losses = {name: plain - trained for name, (_, trained) in WAYS.items()}
    alone = {name: np.full((16, 63), 3.0 - trained) for name, (_, trained) in WAYS.items()}
    for values in alone.values():
        values[:, :32] += 1.0  # with little before them tokens are hard for everybody: that is no help either
    rows = _rows(losses, alone, 64, np.arange(16))
    assert [row["against_alone"] for row in rows] == [0.0] * len(WAYS)
    assert [row["against_own"] for row in rows] == [-float(trained) for _, trained in WAYS.values()]
