"""Long-context tasks of copies trained further with a temperature and without: what is asked, paired and said."""

import json

import pytest

from analysis.errors import BadSetting
from analysis.studies import NAMED
from analysis.studies.context import Context
from lab.focal.tasks import sentence
from tests.made.models import save_models
from tests.made.studied import asker, part_again, studied_home

SIZES = {"length": 32, "windows": 6, "lengths": [256], "items": 2, "steps": 3, "tokens_per_step": 64, "rate": 3e-2}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """With a model that reads prompts of 512 tokens."""
    return save_models(studied_home(tmp_path_factory.mktemp("tasks")), long=512)


@pytest.fixture
def ask(home, tmp_path):
    given = {"model": str(home / "long"), "corpus": str(home / "corpus"), "seeds": 1}
    return asker(NAMED["focal-tasks"], home, output=str(tmp_path / "t.json"), **given, **SIZES)


def test_both_copies_are_asked_as_they_were_trained(ask, home, tmp_path):
    numbers = ask().numbers
    stored = json.loads((tmp_path / "t.json").read_text(), parse_constant=pytest.fail)
    models = ["as it is", "dense, further", "t 0.4, further"]
    assert [row["model"] for row in stored["texts"]] == models
    own, dense, sharp = stored["texts"]
    assert dense["perplexity"] < own["perplexity"] and dense["against_dense"] == 0 != sharp["against_dense"]
    tasks = {row["task"] for row in stored["rows"]}
    assert {"Several needles", "Needle"} <= tasks and len(stored["rows"]) == 3 * len(tasks)
    for row in stored["rows"]:
        assert row["items"] == 2 and row["chance"] == 0.25 and 0 <= row["score"] <= 1
        assert row["model"] != "dense, further" or row["against_dense"] == 0
        assert row["against_dense_low"] <= row["against_dense"] <= row["against_dense_high"]
    assert {row["length"] for row in stored["cells"]} == {256} and len(stored["panels"]) == len(tasks)
    assert {column["name"] for column in stored["columns"]} <= set(stored["rows"][0])
    assert "not of the method" in numbers["sentence"], "one training of each"
    assert part_again(NAMED["focal-tasks"], stored, home)
    again = NAMED["focal-tasks"].recheck(stored, context=Context(state=home / "state", browser=False))
    assert again and all(now == pytest.approx(kept) for kept, now in again.values())


@pytest.mark.parametrize(
    "given, said",
    [
        ({"temperature": 1.0}, "A temperature of 1 is dense attention"),
        ({"items": 1}, "number of questions is 1"),
        ({"lengths": [8]}, "length of a prompt is 8"),
    ],
)
def test_what_cannot_be_asked_is_refused(ask, given, said):
    with pytest.raises(BadSetting, match=said):
        ask(**given)


def row(task, model, low, apart, ends, **more):
    found = {"task": task, "family": "recall", "model": model, "score_low": low, "chance": 0.25}
    found |= {"against_dense": apart, "against_dense_low": ends[0], "against_dense_high": ends[1]}
    return found | more


def test_a_task_at_chance_is_not_judged():
    texts = [row("", "t 0.4, further", 0, 0.01, (0.005, 0.02))]
    pair = [row("Needle", "dense, further", 0.5, 0.0, (0, 0)), row("Needle", "t 0.4, further", 0, 0.2, (0.1, 0.3))]
    pair += [row("Labels", "dense, further", 0.1, 0.0, (0, 0)), row("Labels", "t 0.4, further", 0, 0.5, (0.4, 0.6))]
    said = sentence(pair, texts, 3)
    assert "Needle (recall): more (+20.0 points, 95% interval +10.0 to +30.0)." in said
    assert "At chance without a temperature, and so not judged: Labels." in said and "+50" not in said
    assert said.endswith("Of 2 comparisons, each is judged by its own interval.")
    assert sentence(pair[2:], texts, 3).startswith("No task is above chance without a temperature, so none is judged.")
    unsure = [pair[0], row("Needle", "t 0.4, further", 0, 0.02, (-0.1, 0.14))]
    assert "Needle (recall): not significantly different (+2.0 points" in sentence(unsure, texts, 3)
