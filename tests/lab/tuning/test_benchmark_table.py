"""The stored benchmark scores: what the study leaves, pooled by hand, resumed, and held against the files again."""

import json
from pathlib import Path

import numpy as np
import pytest

from analysis.benchmarks import TASKS, here
from analysis.errors import BadSetting
from analysis.studies.context import Context
from lab.tuning import benchmarks as table
from lab.tuning.benchmarks import ASKED, LONG, METHODS, OWN, Benchmarks, _pooled, first_again
from tests.made.benchmarks import HELLASWAG, PIQA, every, piqa
from tests.made.models import save_models, watched

pytest.importorskip("lm_eval", reason="lm-evaluation-harness is an optional extra (requirements-benchmarks.txt)")
STORED = Path(__file__).parents[3] / "models_cache" / "demo" / "studies" / "benchmarks.json"


@pytest.fixture
def ask(tmp_path, monkeypatch):
    """The study on a random model and made files: two questions, and one example where prompts are long."""
    home = save_models(tmp_path / "models", random=256)
    few = {name: {OWN: (0, 2), LONG: (1, 2)} for name in TASKS}
    monkeypatch.setattr(table, "ASKED", few)
    near = [{"name": "dense", "settings": {}}, {"name": "streaming_llm", "settings": {"window": 16}}]
    monkeypatch.setattr(table, "METHODS", near)
    context = watched(tmp_path / "state")

    def run(data=None, **arguments):
        arguments = {"corpus": str(data or piqa(tmp_path / "data")), "model": str(home / "random")} | arguments
        return Benchmarks.run(**arguments, context=context)

    return run


def test_own_and_long_prompts_of_the_tasks_that_have_files(ask, tmp_path):
    result = ask()
    assert [(row["prompts"], row["shots"], row["name"]) for row in result.numbers["rows"]] == [
        (prompts, shots, name) for prompts, shots in ((OWN, 0), (LONG, 1)) for name in ("dense", "streaming_llm")
    ]
    assert {row["metric"] for row in result.numbers["rows"]} == {TASKS["piqa"].metric}
    short, long = (row for row in result.numbers["rows"] if row["name"] == "streaming_llm")
    assert short["within"] + short["beyond"] == long["within"] + long["beyond"] == 2 and long["beyond"] == 2
    assert short["within_moved"] is None or short["within_moved"] < 1e-4, "what is read whole is dense attention"
    assert long["beyond_moved"] > 0 and long["within_moved"] is None
    stored = json.loads(Path(result.numbers["path"]).read_text(), parse_constant=pytest.fail)
    assert "Not scored: HellaSwag" in stored["notes"][-1] and stored["protocol"]["set_up"] == "A"
    words = json.dumps(stored)
    assert not any(text in words for record in PIQA for text in record.values() if len(text) > 4), "no question is kept"
    again = first_again(stored, "piqa", 0, tmp_path / "data", context=Context(browser=False))
    assert set(again) == {"Dense", "StreamingLLM, window 16"}
    assert all(now == pytest.approx(before, abs=1e-4) for before, now in again.values())


def test_what_is_done_is_not_done_again(ask, monkeypatch):
    first = ask()
    monkeypatch.setattr(table, "benchmark", pytest.fail)
    assert ask().numbers["rows"] == first.numbers["rows"]


def test_tasks_are_pooled_by_items():
    items = {"right": [1.0, 0.0, 1.0], "moved": [0.0, 0.0, 0.0], "fits": [True, True, True]}
    focus = {"right": [1.0, 1.0, 0.0], "moved": [0.0, 0.25, 0.75], "fits": [True, False, False]}
    parts = [{"prompts": OWN, "items": {"Dense": items, "Focus, window 128": focus}}] * 2
    row = _pooled(parts, "Focus, window 128", OWN)
    assert (row["items"], row["longer"], row["within"], row["within_moved"]) == (6, 4 / 6, 2, 0.0)
    assert row["beyond_moved"] == 0.5 and row["difference"] == 0 and row["difference_low"] < 0 < row["difference_high"]
    itself = _pooled(parts, "Dense", OWN)
    assert itself["difference"] == 0 and itself["difference_low"] is None, "an arm against itself has no interval"


def test_tasks_have_numbers_of_questions_and_those_that_are_not_there_are_refused(ask, tmp_path):
    assert set(ASKED) == set(TASKS)
    assert all(numbers[LONG][0] > 0 and min(numbers[OWN][1], numbers[LONG][1]) > 1 for numbers in ASKED.values())
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadSetting, match="No task has its files"):
        ask(tmp_path / "empty")
    with pytest.raises(BadSetting, match="There is no task 'mmlu'"):
        ask(rows="mmlu")
    assert HELLASWAG and len(here(every(tmp_path / "all"))) == 9


@pytest.mark.skipif(not STORED.is_file(), reason="no benchmark scores are stored with this copy")
def test_the_stored_scores_are_whole_and_say_what_they_are_of():
    stored = json.loads(STORED.read_text())
    labels = {row["method"] for row in stored["rows"]}
    assert len(labels) == len(METHODS) and {"Dense", "Focus", f"Focus, window {table.WINDOW}"} <= labels
    for row in stored["rows"]:
        assert row["items"] + row["does_not_fit"] == row["of"] and row["metric"] == TASKS[row["task"]].metric
        assert row["within"] + row["beyond"] == row["items"] and 0 <= row["value"] <= 1 and row["stderr"] is not None
        if row["within_moved"] is not None and row["name"] != "dense":
            assert row["within_moved"] < 1e-3, row
    for row in stored["pooled"]:
        rows_of = [
            row_of
            for row_of in stored["rows"]
            if (row_of["method"], row_of["prompts"]) == (row["method"], row["prompts"])
        ]
        assert row["items"] == sum(row_of["items"] for row_of in rows_of)
        value = sum(row_of["value"] * row_of["items"] for row_of in rows_of) / row["items"]
        assert row["value"] == pytest.approx(value)


@pytest.mark.skipif(not STORED.is_file(), reason="no benchmark scores are stored with this copy")
@pytest.mark.parametrize("task, shots", [("arc_easy", 0), ("piqa", 8), ("lambada", 0)])
def test_a_small_part_of_the_stored_scores_comes_again(shared, task, shots):
    """The files themselves are no part of the project: without them there is nothing to hold the scores against."""
    data = shared / "evals"
    if not (data / task).is_dir():
        pytest.skip(f"the files of {task} are not here")
    stored = json.loads(STORED.read_text())
    again = first_again(stored, task, shots, data, context=Context(browser=False))
    for label, (before, now) in again.items():
        assert np.allclose(before, now, atol=1e-3), label
