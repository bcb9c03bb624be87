"""Constants of a machine: fitted to what its kernels take, kept, and what prices and plans go by from then on."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from analysis.commands.speed import CalibrateMachine
from analysis.groups.controls import random_tokens
from analysis.kernels import native, plan
from analysis.kernels.constants import HOSTS, host
from analysis.runs import machine
from analysis.studies.speed import calibrate_machine
from tests.made.evaluating import watched_context

MEMBERS = random_tokens(4096, 8, 1)


@pytest.fixture
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("FOCUSCOPE_STATE", str(tmp_path))
    # built before: the folder of the programs lies in the state too
    native.library()
    return tmp_path


def planned() -> object:
    return plan(MEMBERS, 128, 8, 64, torch.float32, "cpu", "torch")


def test_what_is_measured_is_kept_and_predictions_go_by_it(own_state):
    usual = planned()
    assert host(False) == HOSTS["float32"] and machine.pace("cpu") == 1
    dear = {"chip": machine.processor_name(), "operations": 2e11, "float32": {"per_token": 1000.0}}
    machine.keep({"cpu": dear})
    assert host(False) == replace(HOSTS["float32"], per_token=1000.0) and machine.pace("cpu") == 4
    assert host(True) == HOSTS["half"], "what was not measured stays as it was"
    now = planned()
    # 880 pairs more of each membership, of the pairs of a dense call whose keys come in stretches of 512
    assert now.cost - usual.cost == pytest.approx(880 * 4096 / (4096 * (4096 + 512) / 2))
    assert now.why != usual.why, "the page says whose constants they are"
    machine.keep({"cpu": dear | {"chip": "another"}, "cuda": {"chip": "a GPU"}})
    assert host(False) == HOSTS["float32"], "those of another chip are none of this one"
    assert machine.constants("cuda", "a GPU") and not machine.constants("cuda", "another GPU")


@pytest.mark.parametrize("wanted", [{"per_token": 500.0}, {"pair": 0.5, "packed": 90.0}])
def test_a_fit_finds_the_constants_that_made_the_times(wanted, monkeypatch, own_state):
    if "pair" in wanted and not calibrate_machine.compiled.runs(torch.float32, 24, 64):
        pytest.skip("no C++ compiler is here")
    true = replace(HOSTS["float32"], **wanted)

    def made(dense, runs, repeats):
        backends = [run.keywords.get("backend") for run in runs]
        if None in backends:
            return np.array([1.25])
        members = [run.args[3] for run in runs]
        return calibrate_machine._predicted(members, backends[0], torch.float32, true)

    monkeypatch.setattr(calibrate_machine, "_beside", made)
    constants = calibrate_machine.host_constants("float32", 1)
    assert {name: constants[name] for name in wanted} == pytest.approx(wanted) and constants["masked"] == 1.25


def test_the_command_measures_this_machine(own_state, monkeypatch):
    monkeypatch.setattr(calibrate_machine, "ON_HOST", 512)
    answer = CalibrateMachine(repeats=1).compute(context=watched_context(own_state))
    constants = machine.constants("cpu")
    assert constants["operations"] > 1e8 and constants["date"] == answer.protocol["date"]
    rows = {(row["format"], row["constant"]): row for row in answer.rows if row["device"] == "cpu"}
    for name in HOSTS:
        assert constants[name]["masked"] == rows[name, "masked"]["here"] > 0
        assert rows[name, "masked"]["usual"] == HOSTS[name].masked
