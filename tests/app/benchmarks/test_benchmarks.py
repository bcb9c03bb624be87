"""Benchmarks on the page Long-context tests, in-process with hand-made results: what is asked and what is shown."""

import pytest

from analysis.commands.probes import Benchmark
from analysis.declaration.undeclared import Undeclared
from analysis.runs import Result
from app.benchmarks import benchmark_scores
from tests.app.probes.test_probes import JOB, client as with_probes, figures, opened  # noqa: F401
from tests.made.in_process import markup, tables
from tests.made.results import STUDIES, protocol
from tests.made.training import put_studies


def benchmark(args: dict, text) -> Result:
    rows = []
    for task in args["tasks"]:
        declared = benchmark_scores.TASKS[task]
        for name in ("dense", *(method["name"] for method in args["methods"])):
            row = {"task": task, "title": declared.title, "method": name, "name": name, "shots": 0, "of": 12}
            row |= {"metric": declared.metric, "value": 0.5, "stderr": 0.1, "value_low": 0.3, "value_high": 0.7}
            row |= {"items": 10, "does_not_fit": 2, "window": None, "longer_than_window": None, "gold": -4.0}
            for end in ("", "_low", "_high"):
                row[f"difference{end}"] = row[f"gold_difference{end}"] = None if name == "dense" else -0.25
            rows.append(row if name == "dense" else row | {"window": 132, "longer_than_window": 0.4})
    about = protocol("benchmark", args, 100)
    return Result({"rows": rows, "sentences": ["PIQA, dense: 50.0%."], "notes": ["2 do not fit."], "protocol": about})


@pytest.fixture
def scored(with_probes, monkeypatch):  # noqa: F811
    monkeypatch.setitem(STUDIES, "benchmark", benchmark)
    monkeypatch.setattr(benchmark_scores, "here", lambda: ["piqa", "gsm8k"])
    return with_probes


def test_without_files_the_page_says_where_they_go(scored, monkeypatch):
    monkeypatch.setattr(benchmark_scores, "here", lambda: [])
    app = opened(tests_tab="files")
    assert "models_cache/benchmarks: one folder for each task" in markup(app) and not app.error
    assert any(code.value.startswith("python -m analysis benchmark hellaswag arc_easy") for code in app.code)


def test_what_is_chosen_is_asked_as_a_job_and_shown_when_done(scored):
    link = {"benchmark_tasks": "piqa", "benchmark_shots": 4, "benchmark_question": "dense"}
    app = opened(**link)
    set_up = benchmark_scores.SET_UPS["dense"]
    assert app.multiselect(key="benchmark_pick").value == ["piqa"] and f"Set-up {set_up.letter}: " in markup(app)
    app.button(key="benchmark_run").click().run()
    job = scored.states.pop(JOB)
    request = Benchmark.from_arguments(job.args)
    assert job.verb == "benchmark" and (request.tasks, request.question) == (["piqa"], "dense")
    assert (request.shots, request.items, request.methods[0]["name"]) == (4, 100, "streaming_llm")
    scored.request(Undeclared("benchmark", job.args))
    app = opened(**link)
    assert "PIQA, dense: 50.0%." in markup(app) and "2 do not fit." in markup(app)
    assert figures(app)[-1]["data"][-1]["name"] == "chance"
    assert any("--shots 4 --items 100 --question dense" in code.value for code in app.code)


def test_differences_are_in_words_and_chance_is_marked_where_it_is_one_number():
    row = {"difference": -0.25, "difference_low": -0.5, "difference_high": 0.0}
    assert benchmark_scores.against(row, "difference", "points") == "−25.0 (−50.0 to 0.0)"
    assert benchmark_scores.against(dict.fromkeys(row), "difference", "nats") == "–"
    rows = benchmark({"tasks": ["piqa", "gsm8k"], "methods": [], "model": "demo"}, None).numbers["rows"]
    marks, chance = benchmark_scores.chart(rows)["data"]
    assert marks["y"] == [0.5, 0.5] and chance["y"] == [0.5] and chance["x"] == [0]


def test_stored_scores_stand_in_the_drawer_with_their_items_and_standard_errors(scored):
    args = {"tasks": ["piqa", "gsm8k"], "methods": [{"name": "focus"}], "model": "demo"}
    rows = benchmark(args, None).numbers["rows"]
    rows = [row | {"prompts": prompts, "shots": shots} for prompts, shots in (("own", 0), ("long", 8)) for row in rows]
    about = protocol("study benchmarks", args, 9) | {"date": "2026-01-02T00:00:00", "command": "python -m analysis x"}
    put_studies(scored.store, benchmarks={"sentence": "Stored.", "rows": rows, "notes": ["Small."], "protocol": about})
    app = opened(tests_tab="files", tests_evidence="yes")
    assert "Stored." in markup(app) and "Small." in markup(app) and not app.error
    drawn = [{column["label"]: column["shown"] for column in table["columns"]} for table in tables(app)]
    table = next(columns for columns in drawn if "standard error" in columns)
    assert table["questions"] == ["10"] * 8 and table["standard error"] == ["10.0%"] * 8
    assert table["examples in a prompt"] == ["0"] * 4 + ["8"] * 4
    assert "benchmark" not in scored.asked and app.button(key="benchmark_run")
