"""Reading twice the context: a small fine-tune that resumes, the study stored, and what is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from analysis.errors import BadSetting, Cancelled
from analysis.models import load_model
from analysis.studies.context import Context
from analysis.training.extend import Extension, extend
from lab.focal.length_extension import WAYS, _rows, length_extension, sentence
from tests.made.studied import asker, part_again, studied_home


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return studied_home(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def model(home):
    return load_model(str(home / "tiny"))


def quiet(fraction, stage):
    assert 0 <= fraction <= 1 and stage


def test_training_lowers_the_loss_of_a_copy_and_leaves_the_model_alone(model, tmp_path):
    before = {name: p.clone() for name, p in model.lm.named_parameters()}
    ids = np.tile(np.arange(10, 60), 40)
    plan = Extension(128, 500_000.0, steps=12, tokens_per_step=256, rate=1e-2, warm_up=1)
    made, losses = extend(model, ids, plan, tmp_path / "a.safetensors", quiet)
    assert losses[-1] < losses[0] - 0.5 and len(losses) == 12
    assert all(torch.equal(p, before[name]) for name, p in model.lm.named_parameters())
    assert not any(torch.equal(p, before[name]) for name, p in made.lm.named_parameters())
    assert model.lm.model.rotary_emb.inv_freq[1] == made.lm.model.rotary_emb.inv_freq[1] > 500_000 ** (-2 / 8)


def test_a_stopped_run_goes_on_to_the_same_weights(model, tmp_path):
    ids, plan = np.arange(5000) % 250, Extension(128, None, steps=12, tokens_per_step=128, rate=1e-3)
    whole, losses = extend(model, ids, plan, tmp_path / "whole.safetensors", quiet)

    def stops(fraction, stage):
        if stage.startswith("model, step 12"):
            raise Cancelled("stopped")

    place = tmp_path / "part.safetensors"
    with pytest.raises(Cancelled):
        extend(model, ids, plan, place, stops)
    seen = []
    again, other = extend(model, ids, plan, place, lambda fraction, stage: seen.append(stage))
    assert len(seen) == 2 and other == pytest.approx(losses)
    for (_, a), (_, b) in zip(whole.lm.named_parameters(), again.lm.named_parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-6)
    with pytest.raises(BadSetting, match="made with another rate"):
        extend(model, ids, replace(plan, rate=2e-3), place, quiet)


def test_the_study_is_stored_and_comes_again(home, tmp_path):
    path = tmp_path / "length-extension.json"
    ask = asker(length_extension, home, corpus=str(home / "corpus"), windows=2, steps=2, tokens_per_step=128, seeds=1)
    found = ask(output=str(path))
    stored = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert [row["way"] for row in stored["rows"]] == list(WAYS) and stored["sentence"] == found.numbers["sentence"]
    first = stored["rows"][0]
    assert first["against_own"] == 0 and {column["name"] for column in stored["columns"]} <= set(first)
    by_position, by_step = stored["panels"]
    assert by_position["x_values"] == [1 + 15 * at for at in range(8)] and len(by_position["series"]) == len(WAYS)
    assert by_step["x_values"] == [1, 2] and len(by_step["series"]) == 2
    assert stored["sentence"].startswith("In the last quarter of 128 tokens")
    assert part_again(length_extension, stored, home)
    for kept, now in length_extension.recheck(stored, context=Context(browser=False)).values():
        assert now == pytest.approx(kept, rel=1e-5)
    again = ask(output=str(path))  # nothing is trained anew
    assert [row["beyond"] for row in again.numbers["rows"]] == pytest.approx([row["beyond"] for row in stored["rows"]])


def test_far_context_is_told_apart_from_more_training():
    """Training takes a nat off everything and makes no use of what is far: that is no help of the far context."""
    plain = np.full((16, 127), 3.0)
    found = {name: plain - trained for name, (_, trained) in WAYS.items()}
    alone = {name: np.full((16, 63), 3.0 - trained) for name, (_, trained) in WAYS.items()}
    for losses in alone.values():
        losses[:, :32] += 1.0  # with little before them tokens are hard for everybody: that is no help either
    rows = _rows(found, alone, 64, np.arange(16))
    assert [row["against_alone"] for row in rows] == [0.0] * len(WAYS)
    assert [row["against_own"] for row in rows] == [-float(trained) for _, trained in WAYS.values()]
    assert "lower" not in sentence(rows, 64, 1)


def test_the_same_tokens_are_compared():
    """Token by token the long window is 0.5 nats lower where it has the far context, and 9 worse before."""
    of_token = np.arange(128.0)
    found = {name: np.tile(of_token[1:] + np.where(of_token[1:] < 96, 9.0, -0.5), (16, 1)) for name in WAYS}
    alone = {name: np.tile(of_token[65:], (16, 1)) for name in WAYS}
    assert [row["against_alone"] for row in _rows(found, alone, 64, np.arange(16))] == [-0.5] * len(WAYS)


def test_what_cannot_be_is_one_sentence(home, model, tmp_path):
    ask = asker(length_extension, home, corpus=str(home / "corpus"), steps=2)
    with pytest.raises(BadSetting, match="number of windows"):
        ask(windows=1)
    with pytest.raises(BadSetting, match="at a rate between"):
        ask(windows=2, rate=2.0)
    with pytest.raises(BadSetting, match="two sequences need 256"):
        extend(model, np.arange(100), Extension(128), tmp_path / "x.safetensors", quiet)
