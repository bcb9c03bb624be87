"""One question asked in many parts, of worker processes and of Ray; a worker that shares no folder with us. That jobs
are the same on Ray as in processes is tried in tests/jobs."""

import json
import re
import shlex
from pathlib import Path

import pytest

from analysis.cli.options import parser
from analysis.cluster import spread
from analysis.cluster.spread import spread_command
from analysis.commands.runs import Spread
from analysis.corpus import sample_texts
from analysis.declaration.undeclared import Undeclared
from analysis.errors import AnalysisError, BadSetting
from analysis.runs import RunStore
from analysis.studies import STUDIES
from analysis.studies.context import Context
from tests.made.working import ENGINES, ended, engine, until


@pytest.fixture(scope="module", autouse=True)
def no_cluster_is_left():
    yield
    import sys

    if "ray" in sys.modules:
        sys.modules["ray"].shutdown()


@pytest.mark.slow
@pytest.mark.parametrize("name", ENGINES)
def test_a_question_in_parts_runs_side_by_side_and_is_merged(name, tmp_path):
    store = RunStore(tmp_path)
    jobs, steps = engine(name, store, workers=2), []
    try:
        merged = spread(jobs, store, "echo", {"name": "x"}, "value", [1, 2, 3], lambda done, stage: steps.append(done))
        assert [part["value"] for part in merged.numbers["parts"]] == [1, 2, 3] and steps[-1] == 1
        assert merged.tables["tokens"]["position"].tolist() == [1, 2, 3, 2, 3, 4, 3, 4, 5]
        assert merged.tables["tokens"]["value"].tolist() == [1] * 3 + [2] * 3 + [3] * 3
        gates = [jobs.submit(Undeclared("gate", {"name": part})) for part in "ab"]
        until(lambda: all(jobs.watch(job).state == "running" for job in gates))
        for part in "ab":
            until((tmp_path / f"began-{part}").exists)
            (tmp_path / f"open-{part}").touch()
        assert [ended(jobs, job).state for job in gates] == ["done", "done"]
        with pytest.raises(AnalysisError, match="1 of 2 parts failed; name None"):
            spread(jobs, store, "gate", {"step": 0.001}, "name", ["a", None])
        with pytest.raises(BadSetting, match="different ones"):
            spread(jobs, store, "echo", {}, "value", [1, 1])
    finally:
        jobs.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["local", "ray"])
def test_a_search_hands_its_rounds_to_the_workers(name, state):
    """Found as by one process, and the parts do not stay among the runs."""
    if name == "ray":
        pytest.importorskip("ray", reason="Ray is not installed (requirements-ray.txt)")
    search = {"methods": [{"name": "tova"}], "prefix": 64, "continuation": 16, "cuts": 8, "lose": 0.5}
    arguments = json.dumps(search | {"texts": ["story"]})
    steps = []
    result = spread_command(
        Spread(study="search", given=arguments, engine=name), progress=lambda done, stage: steps.append(done)
    ).numbers
    store = RunStore()
    text = store.put_text(sample_texts()["story"][1], "story")
    alone = STUDIES["search"](model="demo", texts=[text], **search, context=Context(store)).numbers
    for row, right in zip(result["rows"], alone["rows"], strict=True):
        assert row["budget"] == right["budget"] and row["difference"] == pytest.approx(right["difference"], abs=1e-5)
    assert result["chosen"]["label"] == alone["chosen"]["label"] and steps == sorted(steps) and steps[-1] > 0.9
    assert not store.list("search-part")


@pytest.mark.slow
def test_a_worker_that_sees_nothing_of_ours_sends_its_run_as_a_bundle(tmp_path, monkeypatch):
    """As on a cluster: no common folder. Ray runs here, but the worker is treated as one far away."""
    store = RunStore(tmp_path)
    text = store.put_text("some words to be read far away " * 5, "mine.txt")
    jobs = engine("ray", store)
    jobs._far = True
    try:
        assert jobs.texts_of({"text": text}) == [store.text(text)] and jobs.texts_of({"text": "0" * 12}) == []
        run = jobs.request(Undeclared("echo", {"value": 4, "name": text}))
        assert run.array("group")[0, 0] == 4 and run.folder.is_relative_to(tmp_path)
        job = jobs.submit(Undeclared("count", {"steps": 30, "wait_at": 20}))
        until(lambda: jobs.watch(job).stage == "holding")
        assert jobs.watch(job).fraction == pytest.approx(20 / 30)
        jobs.cancel(job)
        assert ended(jobs, job).state == "cancelled"
        again = ended(jobs, jobs.resume(job))
        assert again.state == "done" and store.open(again.run).numbers["began_at"] == 20
    finally:
        jobs.close()


@pytest.mark.slow
def test_more_than_ray_has_is_refused_before_a_job_waits_for_it(tmp_path):
    store = RunStore(tmp_path)
    for resources, words in (({"gpus": 999}, "2 workers with 999 GPU each"), ({"cpus": 999}, "need 1998 and Ray has")):
        with pytest.raises(BadSetting, match=words):
            engine("ray", store, 2, **resources)


@pytest.mark.parametrize(
    "wrong, words",
    [
        ({"over": "seed"}, "write it like seed=0,1,2"),
        ({"study": "nothing"}, "There is no study 'nothing'"),
        ({"given": "[1]"}, "no JSON object"),
        ({"engine": "slurm"}, "no engine 'slurm'"),
    ],
)
def test_what_cannot_be_spread_is_refused_in_a_sentence(wrong, words, state):
    arguments = {"study": "worth", "over": "keep=0.1,0.2", "given": "{}", "engine": "local", "workers": 1, "gpus": 0}
    with pytest.raises(BadSetting, match=words):
        spread_command(Spread(**arguments | wrong), progress=lambda fraction, stage: None)


def test_the_commands_of_the_document_are_understood():
    document = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text(encoding="utf-8")
    lines = re.findall(r"^(?:\w+\$ +)?python -m analysis (.*)$", document, flags=re.M)
    assert len(lines) >= 5
    for line in lines:
        arguments = vars(parser("").parse_args(shlex.split(line)))
        assert arguments["verb"] != "spread" or arguments.get("engine", "local").partition("://")[0] in ("local", "ray")
