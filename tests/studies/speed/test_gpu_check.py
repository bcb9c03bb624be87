"""`gpu-check`: its tables on the processor, where they are the same code, and what it says. Constants of a machine:
fitted to what its kernels take, kept, and what prices and plans go by from then on."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from analysis.commands.speed import CalibrateMachine
from analysis.errors import BadSetting
from analysis.groups.controls import random_tokens
from analysis.kernels import native, plan
from analysis.kernels.constants import HOSTS, host
from analysis.methods import METHODS
from analysis.models import load_model
from analysis.runs import machine
from analysis.shapes import shaped
from analysis.studies.context import Context
from analysis.studies.speed import calibrate_machine
from analysis.studies.speed.gpu_check import SHAPE, GpuCheck
from analysis.studies.speed.gpu_tables import attention_rows, decode_rows, method_rows, untrained
from tests.made.evaluating import watched_context

CPU = torch.device("cpu")


def no_progress(done, stage):
    """No progress."""


def test_a_machine_without_a_gpu_is_told_so():
    with pytest.raises(BadSetting, match="NVIDIA GPU"):
        GpuCheck.run(context=Context(device="cpu", browser=False))


@pytest.mark.slow
def test_attention_decoding_and_methods_are_timed():
    rows = attention_rows([512, 1024], (4, 8), CPU, 1, 0, no_progress)
    assert [(row["length"], row["groups"], row["paper"]) for row in rows] == [
        (512, 4, None),
        (512, 8, None),
        (1024, 4, 0.2),
        (1024, 8, 0.2),
    ]
    assert all(row["sort_ms"] > 0 for row in rows)
    for row in rows:
        assert row["speedup_low"] <= row["speedup"] <= row["speedup_high"] and row["speedup"] < 1.5 * row["bound"]
    step = decode_rows([2048], 8, CPU, 2, no_progress)[0]
    assert step["what"] == "decode" and step["bound"] > 4 and step["sparse_ms"] > 0
    model = load_model(shaped(SHAPE, CPU, layers=1))
    ready = untrained(model)
    assert {"dense", "focus", "quest", "snapkv", "skip_softmax"} <= {name for name, _ in ready} < set(METHODS)
    few = [ready_method for ready_method in ready if ready_method[0] in ("dense", "focus", "snapkv")]
    rows = method_rows(model, few, 160, no_progress)
    assert [row["method"] for row in rows] == ["dense", "focus", "snapkv"] and not any("refused" in row for row in rows)
    assert all(row["prefill_ms"] > 0 and row["token_ms"] > 0 and row["said_bytes"] > 0 for row in rows)


@pytest.mark.parametrize(
    ("tests", "ending"),
    [
        ({"passed": 7, "seconds": 1.0, "failures": []}, "7 tests marked gpu passed, 0 failed."),
        ({"passed": 7, "failed": 2, "seconds": 1.0, "failures": ["a", "b"]}, "7 tests marked gpu passed, 2 failed."),
        ({"refused": "no pytest"}, "did not run: no pytest."),
    ],
)
def test_its_sentence_is_of_the_longest_text_and_of_the_tests(tests, ending):
    row = {"what": "attention", "groups": 8, "dense_kernel": "torch cuDNN", "bound": 7.0}
    rows = [
        row | {"length": length, "speedup": times, "paper": 4.7, "dense_ms": length**2 / 8, "sparse_ms": length / 4}
        for length, times in ((1024, 0.3), (65536, 5.04))
    ]
    rows.append({"what": "model", "method": "csa", "refused": "memory"})
    summary = GpuCheck.shown({"rows": rows, "tests": tests})
    assert "65,536" in summary["sentence"] and "5.0 times" in summary["sentence"]
    assert summary["sentence"].endswith(ending)
    assert [line["y"] for line in summary["panels"][0]["series"]] == [[0.3, 5.04], [7.0, 7.0], [4.7, 4.7]]
    assert "dense 2.00, 8 groups 1.00" in summary["notes"][0] and "csa (memory)" in summary["notes"][-1]


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

    def times_of(dense, runs, repeats):
        backends = [run.keywords.get("backend") for run in runs]
        if None in backends:
            return np.array([1.25])
        members = [run.args[3] for run in runs]
        return calibrate_machine._predicted(members, backends[0], torch.float32, true)

    monkeypatch.setattr(calibrate_machine, "_beside", times_of)
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
