"""Training with a temperature, tiny: the loss falls, a stopped study ends the same, what is stored comes again."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from analysis.errors import BadSetting, Cancelled
from analysis.studies import NAMED
from analysis.studies.context import Context
from analysis.studies.text.held_out import spread_windows
from analysis.training.pretrain import build_model
from lab.focal import arms
from lab.focal.arms import ArmTrainer
from tests.made.studied import asker, part_again, studied_home

SIZES = {"length": 32, "windows": 9, "steps": 16, "tokens_per_step": 64, "seeds": 2}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return studied_home(tmp_path_factory.mktemp("focal"))


@pytest.fixture
def ask(home, tmp_path, monkeypatch):
    monkeypatch.setattr(arms, "LAYERS", 1)
    given = {"corpus": str(home / "corpus"), "output": str(tmp_path / "f.json")} | SIZES

    def run(name, *args, **more):
        return asker(NAMED[name], home, **given)(*args, **more)

    return run


def stored(tmp_path) -> dict:
    return json.loads((tmp_path / "f.json").read_text(), parse_constant=pytest.fail)


def comes_again(name: str, numbers: dict, home) -> None:
    assert part_again(NAMED[name], numbers, home)
    again = NAMED[name].recheck(numbers, context=Context(state=home / "state", browser=False))
    assert again and all(now == pytest.approx(kept, rel=1e-3) for kept, now in again.values())


@pytest.mark.slow
def test_temperatures_are_trained_stored_and_checked(ask, home, tmp_path):
    numbers = ask("focal-temperatures", rows="dense,0.4,learned,literal,adapted,plain", steps=40).numbers
    kept = stored(tmp_path)
    rows = {row["arm"]: row for row in numbers["rows"]}
    assert list(rows)[:3] == ["dense", "t 0.4", "learned"] and len(rows) == 9
    literal = [row for name, row in rows.items() if "literal" in name]
    assert literal[0]["loss"] != literal[1]["loss"] != rows["learned"]["loss"], "trained with it, read with both"
    assert rows["dense"]["tokens"] == 40 * 64 and rows["t 0.4, adapted"]["tokens"] == (40 + 5) * 64
    assert 5 / 11.4 < rows["learned"]["temperature"] <= 10 / 11.3 and rows["dense"]["temperature"] is None
    assert rows["dense, no norm"]["gains"] is None and rows["dense"]["gains"] > 0
    curve = [point["loss"] for point in numbers["curves"] if (point["arm"], point["seed"]) == ("t 0.4", 0)]
    assert curve[-1] < curve[0], "the loss falls"
    told = numbers["protocol"]
    assert told["training_tokens"] == 2560
    comes_again("focal-temperatures", kept, home)
    before = set((tmp_path / "work").glob("focal-*.safetensors"))
    assert ask("focal-limits", rows="dense,5-10", steps=40).numbers["rows"][1]["loss"] == rows["learned"]["loss"]
    assert set((tmp_path / "work").glob("focal-*.safetensors")) == before, "what two studies share is trained once"
    comes_again("focal-limits", stored(tmp_path), home)


@pytest.mark.slow
def test_scaling_reads_every_model_at_four_shares(ask, home, tmp_path):
    numbers = ask("focal-scaling", rows="context", steps=4).numbers
    assert [row["context"] for row in numbers["rows"]] == [32] * 3 + [16] * 3 + [64] * 3
    assert sorted({row["tokens"] for row in numbers["points"]}) == [64, 128, 192, 256]
    assert numbers["parameters"] == [] and len(numbers["tokens"]) == 2
    comes_again("focal-scaling", stored(tmp_path), home)


def of(lm, windows, work, longer=None, steps=8) -> ArmTrainer:
    about = {"lm": lm, "documents": [], "work": work, "context": None, "expected": 1, "units": np.arange(len(windows))}
    return ArmTrainer(**about, windows=windows, longer=longer, steps=steps, tokens_per_step=64)


def test_no_window_joins_two_places_of_the_text(tmp_path):
    """A text of numbers that rise by one: so do those of every window, whatever the context."""
    lm = SimpleNamespace(tokenizer=None, revision="")
    short, longer = (spread_windows(np.arange(1000), size, 256 // size).reshape(-1, size) for size in (32, 64))
    trainer = of(lm, short, tmp_path, longer=(longer, np.arange(len(longer))), steps=8)
    for context in (16, 32, 64):
        read, documents = trainer.read_by(arms.Arm("dense", context=context))
        assert (np.diff(read, axis=1) == 1).all() and read.size == 256 and read.shape == (256 // context, context)
        assert (np.bincount(documents) == max(1, 32 // context)).all(), "halves of a window are of its document"


def test_adapted_models_read_other_texts_and_know_how_long_their_base_was_trained(tmp_path):
    lm, ids = SimpleNamespace(tokenizer=None, revision=""), np.zeros((2, 32), np.int64)
    adapted = arms.Arm("dense, further", further=True)
    recipes, places = [], []
    for steps in (80, 84):
        trainer = of(lm, ids, tmp_path, steps=steps)
        recipes.append(trainer.recipe(adapted, 0))
        places.append(trainer._place(adapted, recipes[-1]))
    assert recipes[0] == recipes[1] and places[0] != places[1]
    assert recipes[0].seed != trainer.recipe(arms.Arm("dense"), 0).seed


@pytest.mark.slow
def test_a_training_that_was_stopped_inside_goes_on(ask, tmp_path, monkeypatch):
    whole = ask("focal-limits", rows="5-10", work=str(tmp_path / "a"), steps=40).numbers
    monkeypatch.setattr(arms, "KEPT_EVERY", 0.0)

    def stop(fraction, stage):
        if fraction > 0.7:
            raise Cancelled("enough")

    with pytest.raises(Cancelled):
        ask("focal-limits", stop, rows="5-10", work=str(tmp_path / "b"), steps=40)
    assert list((tmp_path / "b").glob("*/checkpoint.safetensors"))
    assert ask("focal-limits", rows="5-10", work=str(tmp_path / "b"), steps=40).numbers["rows"] == whole["rows"]


def test_one_model_code_with_and_without_the_norm():
    recipe = arms.Arm("dense").recipe(8, 64, 32, 0)
    normed, plain = (build_model(replace(recipe, family=family), 300) for family in ("llama", "llama_plain"))
    shared = dict(plain.named_parameters())
    assert {name for name, _ in normed.named_parameters()} - set(shared) == {
        f"model.layers.{layer}.self_attn.{side}_norm.weight" for layer in range(4) for side in "qk"
    }
    assert all(torch.equal(p, dict(normed.named_parameters())[name]) for name, p in shared.items()), "one start"
    assert arms.gains(normed) == 1 and arms.gains(plain) is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"rows": "0"}, "must lie between"),
        ({"steps": 3}, "at least 4 steps"),
        ({"tokens_per_step": 48}, "must be a multiple of the context"),
    ],
)
def test_what_cannot_be_studied_is_refused(given, said, ask):
    with pytest.raises(BadSetting, match=said):
        ask("focal-temperatures", **given)
