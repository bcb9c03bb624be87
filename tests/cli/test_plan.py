"""`--plan`: what would run, its price and what is stored; nothing runs."""

import json

import pytest

from analysis.__main__ import main
from analysis.cli.asked import asked
from analysis.cli.options import fields
from analysis.cli.plan import plan
from analysis.commands import commandline
from analysis.declaration.undeclared import Undeclared
from analysis.errors import BadSetting
from analysis.runs import Result, RunStore
from tests.cli.test_options import ASKED, is_needed, read, samples


@pytest.fixture(autouse=True)
def nothing_runs(state, monkeypatch):
    monkeypatch.setattr("analysis.cli.asked.Asked.run", lambda self, progress: pytest.fail("it ran"))


def reply(capsys, *words: str) -> dict:
    assert main([*words, "--plan", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert set(answer) == {"verb", "arguments", "price", "stored"}
    return answer


def test_a_study_is_planned_with_its_own_sizes(capsys):
    words = "study", "focal-temperatures"
    planned = reply(capsys, *words)
    sizes = {"name": "focal-temperatures", "length": 512, "windows": 64, "steps": 500, "tokens_per_step": 2048}
    assert planned["verb"] == "study" and sizes.items() <= planned["arguments"].items()
    assert planned["price"]["seconds"] > 0 and planned["stored"].endswith("studies/focal-temperatures.json")
    smaller = reply(capsys, *words, "--steps", "50")
    assert smaller["arguments"]["steps"] == 50 and smaller["stored"] is None
    assert smaller["price"]["seconds"] < planned["price"]["seconds"]
    fewer = reply(capsys, *words, "--seeds", "1")["price"]
    assert fewer["seconds"] < 0.4 * planned["price"]["seconds"], "a third of the trainings"
    processor, gpu = (
        reply(capsys, "study", "focal-scaling", *device)["price"] for device in ((), ("--device", "cuda"))
    )
    assert gpu["seconds"] < processor["seconds"] / 4, "a GPU made the stored one"


def test_what_is_stored_is_found_however_its_arguments_were_spelled(capsys):
    planned = reply(capsys, "budgets")
    assert planned["stored"] is None
    store, result = RunStore(), Result({"x": 1, "protocol": {}})
    run = store.put(Undeclared("budgets", {"model": "demo", "window": None}), result, {}, 0.5)
    assert reply(capsys, "budgets")["stored"] == run.id
    assert reply(capsys, "budgets", "--policy", "mine")["stored"] is None
    assert main(["budgets", "--plan"]) == 0
    assert f"Stored already: {run.id}." in capsys.readouterr().out


@pytest.mark.parametrize(("verb", "study"), ASKED, ids=str)
def test_every_verb_has_a_plan(verb, study):
    options = fields(verb, study)
    needed = {name: samples(field)[0] for name, field in options.items() if is_needed(field)}
    planned = plan(asked(read(commandline(verb, needed | ({"name": study} if study else {})))))
    assert set(planned["arguments"]) == {*options, *(["name"] if study else [])} and planned["price"]["seconds"] > 0


@pytest.mark.parametrize("verb", ["route", "train-router", "launch"])
def test_a_length_beyond_the_model_is_refused_before_it_is_priced(verb):
    needed = {name: samples(field)[0] for name, field in fields(verb).items() if is_needed(field)}
    with pytest.raises(BadSetting, match="more than the 2,048"):
        plan(asked(read(commandline(verb, needed | {"length": 32768}))))
    assert plan(asked(read(commandline(verb, needed | {"length": 2048}))))["price"]["seconds"] > 0
