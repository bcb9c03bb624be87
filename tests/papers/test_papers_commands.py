"""The command beside a number makes that number: what it would run is what is stored, and so is what a button asks."""

import json
import shlex
from pathlib import Path

import pytest
import torch

from analysis.cli.asked import asked
from analysis.cli.options import parser
from analysis.cli.plan import plan
from analysis.commands.training import Pretrain
from analysis.papers.beside import beside, findings, made, measuring
from analysis.papers.ours import reading, readings
from analysis.studies.training.pretrain import recipe_of
from analysis.training.pretrain import build_model
from analysis.training.settings import RouterTraining
from lab.focus.table9 import cells

ROOT = Path(__file__).resolve().parents[2]
STORED = {path.stem: json.loads(path.read_text()) for path in (ROOT / "models_cache/demo/studies").glob("*.json")}
ROWS = {"/".join(key): row for key, row in beside().items()}
PLACES = ROWS | {f"finding {finding.number}": finding.beside for finding in findings()}


def protocol(name):
    return STORED.get(name, {}).get("protocol")


def planned(command):
    return plan(asked(vars(parser("").parse_args(shlex.split(command)[3:]))))


def shown():
    """(command, stored study) of everything that stands beside a number of that study."""
    pairs = set()
    for place in PLACES.values():
        jobs, job = made(place, protocol), measuring(place, protocol)
        numbers = readings(place, lambda number, _: reading(number, STORED.get(number.study)))
        studies = {ours.number.study for ours in numbers} - {""}
        for name in studies:
            pairs.add((jobs[name].command, name))
            if job.verb == "study" and protocol(name)["verb"] == f"study {job.args['name']}":
                pairs.add((job.command, name))
    return sorted(pairs)


@pytest.mark.parametrize("command, name", shown())
def test_the_command_beside_a_number_makes_it(command, name):
    """Model, length, steps, seeds and all else that the stored study was asked for."""
    plan = planned(command)
    assert plan["stored"] and Path(plan["stored"]) == ROOT / f"models_cache/demo/studies/{name}.json"
    stated = protocol(name)
    assert plan["arguments"] | stated["sizes"] == plan["arguments"]
    assert (plan["arguments"]["model"], plan["arguments"]["seed"]) == (stated["model"], stated["seed"])


PORTION = "groups=2,groups=8"  # of a grid, with other steps than usual


@pytest.mark.slow
def test_a_cell_that_a_stored_portion_lacks_is_measured_as_its_others_were():
    stated = protocol("ablations")
    steps = stated["sizes"]["steps"] + 1
    portion = stated | {"asked": stated["asked"] | {"steps": steps, "rows": PORTION}}
    cells_of = {where: row for where, row in ROWS.items() if row.job.adds}
    assert len(cells_of) > 20
    for where, row in cells_of.items():
        found = planned(measuring(row, lambda _: portion).command)["arguments"]
        differing = {name for name, value in stated["sizes"].items() if found[name] != value}
        assert differing == {"rows", "steps"} and found["steps"] == steps, where
        assert set(PORTION.split(",")) <= set(found["rows"].split(",")), "the stored cells stay"
        grid = cells(found["rows"], RouterTraining(), Wide())
        for number in row.numbers:
            assert (number.path[1]["factor"], number.path[1]["value"]) in grid, where


class Wide:
    width = 256


@pytest.mark.parametrize("size", ["400M", "777M", "1.3B", "2.7B", "6.7B", "9.5B"])
def test_focal_attentions_sizes_are_trained_by_one_command_as_printed(size):
    """Table 3's shape has about the parameters that it is called by (its embeddings are tied here), table 4's steps see
    26 billion tokens, and what sections 3.1 and 3.2 print of the training holds for both."""
    rows = [ROWS[f"focal_attention/{table}/{size}"] for table in ("table 3", "table 4")]
    plans = [planned(row.job.command) for row in rows]
    training = Pretrain(**plans[0]["arguments"])
    recipe = recipe_of(training)
    with torch.device("meta"):
        parameters = sum(p.numel() for p in build_model(recipe, training.vocabulary).parameters())
    named = float(size[:-1]) * {"M": 1e6, "B": 1e9}[size[-1]]
    assert parameters == pytest.approx(named, rel=0.11) and plans[0]["arguments"] == plans[1]["arguments"]
    assert recipe.steps * recipe.tokens_per_step == pytest.approx(26e9, rel=0.01)
    assert (recipe.family, recipe.optimiser, recipe.weight_decay) == ("llama", "adamw", 0.05)
    assert recipe.phases() == [(0, 100_000, 2048)] and recipe.kv_heads == recipe.heads == recipe.width // 128
    # In tokens that take 2 ms each: the seconds that the bundled model's training took for a token and a parameter.
    seconds = 26.2e9 * parameters * 16_409 / 35.27e6 / 5.77e6
    assert 0.002 * Pretrain.workload(plans[0]["arguments"], 1) == pytest.approx(seconds, rel=0.05)


@pytest.mark.parametrize("where", [where for where, row in PLACES.items() if row.job.verb not in ("", "study")])
def test_the_command_of_a_run_asks_what_its_button_asks(where):
    job = PLACES[where].job
    arguments = planned(job.command)["arguments"]
    for name, value in job.args.items():
        if name in arguments and value not in ("", None):
            assert arguments[name] == value, name


def test_a_model_without_the_study_is_asked_with_its_defaults():
    """Nothing of the bundled model's sizes is taken over: those of another model may not fit."""
    for row in PLACES.values():
        job = measuring(row, lambda name: None)
        assert job == row.job
        if job.verb == "study":
            assert set(job.args) <= {"name", "corpus", "router", "groups", "rows"}
