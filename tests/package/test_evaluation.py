"""lm-evaluation-harness under a method: dense attention scores as the harness alone, a short window does not."""

import json
import sys
import tomllib
from pathlib import Path

import pytest

from analysis import package
from focuscope.__main__ import evaluate
from tests.made.asking import SHORT
from tests.made.tiny_tokenizer import save_model

ROOT = Path(__file__).resolve().parents[2]
EVALUATION = "analysis.notebook.evaluation"

TASK = {
    "task": "made_by_hand",
    "dataset_path": "json",
    "output_type": "multiple_choice",
    "test_split": "test",
    "doc_to_text": "{{question}}",
    "doc_to_choice": ["lamp", "letter"],
    "doc_to_target": "{{answer}}",
    "metric_list": [{"metric": "acc"}],
}


@pytest.mark.slow
def test_a_hand_made_task(tmp_path):
    pytest.importorskip("lm_eval", reason="the optional package lm_eval is not installed")
    import lm_eval
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    from analysis.errors import BadSetting
    from analysis.models import load_model
    from analysis.notebook.evaluation import Focuscope

    save_model(tmp_path / "tiny")
    rows = [{"question": f"{SHORT[start : start + 40]} the", "answer": start % 2} for start in range(6)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    task = TASK | {"dataset_kwargs": {"data_files": {"test": str(tmp_path / "rows.jsonl")}}}

    def scores(model) -> list:
        result = lm_eval.simple_evaluate(
            model, tasks=[task], task_manager=TaskManager(include_defaults=False), bootstrap_iters=0, log_samples=True
        )
        samples = sorted(result["samples"]["made_by_hand"], key=lambda sample: sample["doc_id"])
        return [answer for sample in samples for (answer, _) in sample["filtered_resps"]]

    place = str(tmp_path / "tiny")
    stock = load_model(place)
    alone = scores(HFLM(pretrained=stock.lm, tokenizer=stock.tokenizer, batch_size=1))
    model = Focuscope(place, "streaming_llm", window=4, n_sink=0, batch_size=1)
    assert lm_eval.api.registry.get_model("focuscope") is Focuscope
    short = scores(model)
    model.applied.__exit__(None, None, None)
    assert scores(model) == pytest.approx(alone, abs=1e-5), "without the method it is the stock model"
    assert max(abs(first - second) for first, second in zip(short, alone, strict=True)) > 1e-4
    assert scores(Focuscope(place, batch_size=1)) == pytest.approx(alone, abs=1e-5)
    with pytest.raises(BadSetting, match="snapkv decides at the end of a prompt"):
        Focuscope(place, "snapkv")


WRONG = {
    "a misspelt field": ("method=streaming_llm,windw=64", "'windw'; it has: n_sink, window"),
    "an argument that a loaded model drops": ("method=dense,peft=adapter", "'peft'"),
    "a router that is none": ("method=focus,router=k99-top7", "is 99 and must lie"),
    "a policy that is none": ("method=csa,policy=nosuch", "nosuch"),
    "a policy without a reader": ("method=dense,policy=mine", "reads with no policy"),
    "a method that is none": ("method=nosuch", "no method 'nosuch'"),
    "a type that is none": ("dtype=bfloat17", "'bfloat17'"),
    "a device that is not here": ("device=cuda:77", "cuda:77"),
}


@pytest.mark.parametrize("case", WRONG)
def test_an_argument_that_means_nothing_is_refused(case, tmp_path):
    pytest.importorskip("lm_eval", reason="the optional package lm_eval is not installed")
    from analysis.errors import BadSetting
    from analysis.notebook.evaluation import Focuscope

    words, reason = WRONG[case]
    with pytest.raises(BadSetting, match=reason):
        Focuscope.create_from_arg_string(f"pretrained={save_model(tmp_path)},{words}", {"batch_size": 1})


def test_the_type_of_the_weights_is_the_one_that_was_asked_for(tmp_path):
    pytest.importorskip("lm_eval", reason="the optional package lm_eval is not installed")
    import torch

    from analysis.notebook.evaluation import Focuscope

    place = str(save_model(tmp_path))
    for words, kind in (("dtype=bfloat16", torch.bfloat16), ("dtype=float64,max_length=32", torch.float64)):
        model = Focuscope.create_from_arg_string(f"pretrained={place},{words}", {"device": "cpu"})
        assert model.model.dtype == kind and model.held.precision == str(kind)[6:]
        assert model.max_length == (32 if "max_length" in words else 64)


@pytest.mark.parametrize("absent", ["lm_eval", "accelerate"])
def test_without_its_packages_it_ends_in_a_sentence(absent, monkeypatch, capsys):
    for name in [name for name in sys.modules if name.split(".")[0] in ("lm_eval", absent) or name == EVALUATION]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, absent, None)
    assert evaluate(["ls"]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and absent in message and "pip install -r requirements-benchmarks.txt" in message


def test_a_wheel_names_its_own_extra(tmp_path, monkeypatch):
    monkeypatch.setattr(package, "HOME", tmp_path)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["dynamic"]
    for extra in ("benchmarks", "mcp", "ray"):
        assert package.installs(extra) == f"pip install 'focuscope[{extra}]'"
        assert extras["optional-dependencies"][extra]["file"] == [f"requirements-{extra}.txt"]
