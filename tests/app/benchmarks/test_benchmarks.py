"""Benchmarks on the page Long-context tests, in-process with hand-made results: what is asked and what is shown."""

import pytest

from analysis.runs import Result
from analysis.runs.arguments import check_arguments
from app.benchmarks import page
from tests.app.probes.test_probes import client as with_probes, figures, opened  # noqa: F401
from tests.made.in_process import markup, part
from tests.made.results import STUDIES, protocol
from tests.made.training import put_studies


def benchmark(args: dict, text) -> Result:
    rows = []
    for task in args["tasks"]:
        for name in ("dense", *(one["name"] for one in args["methods"])):
            row = {"task": task, "title": page.TASKS[task].title, "method": name, "name": name, "shots": 0, "of": 12}
            row |= {"metric": page.TASKS[task].metric, "value": 0.5, "stderr": 0.1, "value_low": 0.3, "value_high": 0.7}
            row |= {"items": 10, "does_not_fit": 2, "window": None, "longer_than_window": None, "gold": -4.0}
            for end in ("", "_low", "_high"):
                row[f"difference{end}"] = row[f"gold_difference{end}"] = None if name == "dense" else -0.25
            rows.append(row if name == "dense" else row | {"window": 132, "longer_than_window": 0.4})
    about = protocol("benchmark", args, 100)
    return Result({"rows": rows, "sentences": ["PIQA, dense: 50.0%."], "notes": ["2 do not fit."], "protocol": about})


def tables(app) -> list[dict]:
    """The columns of every table of the page, as they are shown."""
    count = sum(one.proto.component_name == "focuscope_table" for one in app.get("bidi_component"))
    shown = [part(app, "table", at)["columns"] for at in range(count)]
    return [{column["label"]: column["shown"] for column in columns} for columns in shown]


@pytest.fixture
def made(with_probes, monkeypatch):  # noqa: F811
    monkeypatch.setitem(STUDIES, "benchmark", benchmark)
    monkeypatch.setattr(page, "here", lambda: ["piqa", "gsm8k"])
    return with_probes


def test_without_files_the_page_says_where_they_go(made, monkeypatch):
    monkeypatch.setattr(page, "here", lambda: [])
    app = opened(tests_tab="files")
    assert "models_cache/benchmarks: one folder for each task" in markup(app) and not app.error
    assert any(code.value.startswith("python -m analysis benchmark hellaswag arc_easy") for code in app.code)


def test_what_is_chosen_is_asked_as_a_job_and_shown_when_done(made):
    app = opened(benchmark_tasks="piqa", benchmark_shots=4, benchmark_question="dense")
    assert app.multiselect(key="benchmark_pick").value == ["piqa"]
    app.button(key="benchmark_run").click().run()
    job = made.states["0123456789ab"]
    assert job.verb == "benchmark" and job.args["tasks"] == ["piqa"] and job.args["question"] == "dense"
    assert (job.args["shots"], job.args["items"], job.args["methods"][0]["name"]) == (4, 100, "streaming_llm")
    from analysis.studies.benchmarks.benchmark import benchmark as real

    assert check_arguments("benchmark", real, job.args)
    made.request("benchmark", job.args)
    del made.states["0123456789ab"]
    app = opened(benchmark_tasks="piqa", benchmark_shots=4, benchmark_question="dense")
    assert "PIQA, dense: 50.0%." in markup(app) and "2 do not fit." in markup(app)
    assert figures(app)[-1]["data"][-1]["name"] == "chance"
    assert any("--shots 4 --items 100 --question dense" in code.value for code in app.code)


def test_differences_are_in_words():
    row = {"difference": -0.25, "difference_low": -0.5, "difference_high": 0.0}
    assert page._against(row, "difference", "points") == "−25.0 (−50.0 to 0.0)"
    assert page._against({f"difference{end}": None for end in ("", "_low", "_high")}, "difference", "nats") == "–"


def test_the_chart_marks_chance_where_it_is_one_number():
    rows = benchmark({"tasks": ["piqa", "gsm8k"], "methods": [], "model": "demo"}, None).numbers["rows"]
    marks, chance = page.chart(rows)["data"]
    assert marks["y"] == [0.5, 0.5] and chance["y"] == [0.5] and chance["x"] == [0]


def test_stored_scores_stand_in_the_drawer_with_their_items_and_standard_errors(made):
    args = {"tasks": ["piqa", "gsm8k"], "methods": [{"name": "focus"}], "model": "demo"}
    rows = benchmark(args, None).numbers["rows"]
    kept = [row | {"prompts": prompts, "shots": shots} for prompts, shots in (("own", 0), ("long", 8)) for row in rows]
    about = protocol("study benchmarks", args, 9) | {"date": "2026-01-02T00:00:00", "command": "python -m analysis x"}
    put_studies(made.store, benchmarks={"sentence": "Stored.", "rows": kept, "notes": ["Small."], "protocol": about})
    app = opened(tests_tab="files", tests_evidence="yes")
    assert "Stored." in markup(app) and "Small." in markup(app) and not app.error
    table = next(one for one in tables(app) if "standard error" in one)
    assert table["questions"] == ["10"] * 8 and table["standard error"] == ["10.0%"] * 8
    assert table["examples in a prompt"] == ["0"] * 4 + ["8"] * 4
    assert "benchmark" not in made.asked and app.button(key="benchmark_run")


def test_both_set_ups_are_said_where_they_are_chosen(made):
    for name, one in page.SET_UPS.items():
        app = opened(benchmark_question=name)
        assert f"Set-up {one.letter}: {one.means}" in markup(app)
