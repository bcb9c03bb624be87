"""`gpu-check`: its tables on the processor, where they are the same code, and what it says."""

import pytest
import torch

from analysis.errors import BadSetting
from analysis.methods import METHODS
from analysis.models import load_model
from analysis.shapes import shaped
from analysis.studies.context import Context
from analysis.studies.speed.gpu_check import SHAPE, GpuCheck
from analysis.studies.speed.gpu_tables import attention_rows, decode_rows, method_rows, untrained

CPU = torch.device("cpu")


def nothing(done, stage):
    """No progress."""


def test_a_machine_without_a_gpu_is_told_so():
    with pytest.raises(BadSetting, match="NVIDIA GPU"):
        GpuCheck.run(context=Context(device="cpu", browser=False))


@pytest.mark.slow
def test_attention_decoding_and_methods_are_timed():
    rows = attention_rows([512, 1024], (4, 8), CPU, 1, 0, nothing)
    assert [(row["length"], row["groups"], row["paper"]) for row in rows] == [
        (512, 4, None),
        (512, 8, None),
        (1024, 4, 0.2),
        (1024, 8, 0.2),
    ]
    assert all(row["sort_ms"] > 0 for row in rows)
    for row in rows:
        assert row["speedup_low"] <= row["speedup"] <= row["speedup_high"] and row["speedup"] < 1.5 * row["bound"]
    step = decode_rows([2048], 8, CPU, 2, nothing)[0]
    assert step["what"] == "decode" and step["bound"] > 4 and step["sparse_ms"] > 0
    model = load_model(shaped(SHAPE, CPU, layers=1))
    ready = untrained(model)
    assert {"dense", "focus", "quest", "snapkv", "skip_softmax"} <= {name for name, _ in ready} < set(METHODS)
    few = [ready_method for ready_method in ready if ready_method[0] in ("dense", "focus", "snapkv")]
    rows = method_rows(model, few, 160, nothing)
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
