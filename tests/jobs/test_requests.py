"""Requests to the worker: one answer each, errors as sentences, and none lost when the worker is."""

import json
import os
import signal
import threading
import time

import pytest

from analysis.commands import named
from analysis.declaration.undeclared import Undeclared
from analysis.errors import AnalysisError, BadSetting, BadText, Busy
from analysis.jobs import Jobs, runner
from analysis.runs import RunStore
from tests.made.documents import notebook
from tests.made.working import SLOW, began, emptied, ended, opened, overdue, until, warm


@pytest.fixture(scope="module")
def client_of_all(tmp_path_factory):
    """One client for all tests, since a worker takes a second to start."""
    yield from opened(tmp_path_factory.mktemp("requests"))


@pytest.fixture
def jobs(client_of_all):
    return emptied(client_of_all)


@pytest.mark.slow
def test_a_request_is_computed_once_and_then_found(jobs):
    begun = time.monotonic()
    run = jobs.request(Undeclared("echo", {"value": 7}))
    waited = time.monotonic() - begun
    assert run.numbers["value"] == 7 and not run.cached and run.table("tokens")["position"].tolist() == [7, 8, 9]
    assert run.array("group").shape == (2, 3) and 0 < run.seconds < waited and run.protocol["tokens"] == 100
    os.kill(run.numbers["pid"], signal.SIGKILL)
    again = jobs.request(Undeclared("echo", {"value": 7.0}))
    assert again.id == run.id and again.cached and again.numbers["pid"] == run.numbers["pid"]


@pytest.mark.slow
def test_an_upload_is_read_by_the_worker_and_leaves_only_its_text(jobs):
    key = jobs.read(notebook(("markdown", "the ferry left"), ("code", "leave()")), "a.ipynb")
    assert jobs.store.text(key) == ("a.ipynb", "the ferry left\n\nleave()")
    assert jobs.store.said(key) == "Notebook: 1 text cell and 1 code cell read; outputs left out; 4 words."
    with pytest.raises(BadText, match="a.ipynb is no notebook: its JSON is broken"):
        jobs.read(b"{", "a.ipynb")
    assert not list((jobs.store.root / "uploads").iterdir())


@pytest.mark.parametrize("upload", ["../texts/0123456789ab.json", "0123456789abcdef", "/etc/hostname", None])
def test_a_request_names_no_file_but_an_upload(jobs, upload):
    with pytest.raises(BadSetting, match="This upload is not here"):
        jobs._keeper.ask("read", {"upload": upload, "name": "a.pdf"}, 60)


@pytest.mark.parametrize(
    ("verb", "kind", "words"),
    [
        ("bad-text", BadText, "^the text has 3 characters and 10 are needed: use a longer one.$"),
        (
            "bug",
            AnalysisError,
            r"internal error \(KeyError: 'missing'\). Nothing stored is lost; the log is at .*worker.log",
        ),
        ("wrong", AnalysisError, "TypeError: wrong returned dict, not a result"),
        ("nothing", BadSetting, "There is no study 'nothing'; there are: echo, gate"),
    ],
)
def test_an_error_of_a_study_arrives_as_itself(jobs, verb, kind, words):
    with pytest.raises(AnalysisError, match=words) as caught:
        jobs.request(Undeclared(verb, {}))
    assert type(caught.value) is kind
    pid = warm(jobs)
    with pytest.raises(kind):
        jobs.request(Undeclared(verb, {}))
    assert jobs.status()["pid"] == pid
    if verb == "bug":
        assert 'in bug\n    return {}["missing"]' in (jobs.store.root / "worker.log").read_text()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"layer": "3"}, "layer of typed must be a whole number or nothing, and '3' was given"),
        ({"layer": True}, "must be a whole number"),
        ({"top": None}, "top of typed must be a whole number"),
        ({"rate": "nan"}, "rate of typed must be a number"),
        ({"rate": float("nan")}, "only finite numbers"),
        ({"content": 1}, "must be true or false"),
        ({"model": "x" * 3000}, "3,000 characters and the limit is 2,000"),
        ({"model": "x" * 30_000}, "the limit is 16,384"),
        ({"context": "mine"}, "has no argument 'context'; it has: model, layer"),
        ({"a": [[[[[[[[[1]]]]]]]]]}, "nested deeper"),
        ({3: 1}, "names are text"),
        ([], "named arguments"),
    ],
)
def test_forged_arguments_are_refused_with_a_sentence(jobs, args, words):
    with pytest.raises(BadSetting, match=words):
        jobs.request(Undeclared("typed", args))


def test_arguments_of_the_right_type_pass(jobs):
    numbers = jobs.request(
        Undeclared("typed", {"layer": 3.0, "rate": 1, "content": False, "model": "../../etc"})
    ).numbers
    assert numbers == {"model": "../../etc", "layer": 3, "rate": 1.0, "content": False, "top": 3}
    with pytest.raises(BadSetting, match="gate needs the argument 'name'"):
        jobs.request(Undeclared("gate", {}))


@pytest.mark.parametrize("verb", ["../x", "", "A", "a" * 50, None, "describe;"])
def test_a_forged_verb_makes_no_request(verb):
    with pytest.raises(BadSetting, match="not the name of a study"):
        named(verb, {})


@pytest.mark.parametrize("job_id", ["../../x", "", None, "0" * 12])
def test_forged_job_ids_are_refused(jobs, job_id):
    for ask in (jobs.watch, jobs.cancel, jobs.resume):
        with pytest.raises(BadSetting, match="job"):
            ask(job_id)


def test_what_is_kept_of_the_methods_is_what_the_worker_says():
    """`python -m analysis commands` keeps it; pages then open before a worker has started."""
    from analysis.jobs.client import kept
    from analysis.studies import describe

    assert kept() == json.loads(json.dumps({"methods": describe()})), "run `python -m analysis commands`"


def test_a_description_of_other_sources_is_none(monkeypatch):
    from analysis.jobs import client as described

    assert described.kept() is not None
    monkeypatch.setattr(described, "sources", lambda: "0" * 12)
    assert described.kept() is None


@pytest.mark.slow
def test_what_a_library_prints_goes_to_the_log(jobs):
    assert jobs.request(Undeclared("shout", {})).numbers == {"heard": True}
    assert jobs.request(Undeclared("echo", {"value": 1})).numbers["value"] == 1
    log = (jobs.store.root / "worker.log").read_text()
    assert '{"id": "forged"}' in log and "from a child" in log


@pytest.mark.slow
def test_a_request_without_an_answer_ends_in_time_and_the_next_one_is_answered(jobs, monkeypatch):
    pid = warm(jobs)
    with (
        monkeypatch.context() as late,
        pytest.raises(Busy, match=r"did not answer gate within 60 s and is still at it"),
    ):
        overdue(late)
        jobs.request(Undeclared("gate", {"name": "a"}))
    assert jobs.request(Undeclared("echo", {"value": 2})).numbers == {
        **jobs.request(Undeclared("echo", {"value": 2})).numbers,
        "pid": pid,
    }
    assert jobs.store.list("gate") == []


def test_a_timed_out_request_that_has_not_begun_never_begins(jobs, monkeypatch):
    monkeypatch.setattr(runner, "GRACE", 0.3)
    job = jobs.submit(Undeclared("stubborn", {"name": "s"}))
    began(jobs, "s")
    with pytest.raises(Busy, match="is busy with other work"):
        jobs.request(Undeclared("gate", {"name": "late"}), timeout=0.2)
    jobs.cancel(job)
    assert ended(jobs, job).state == "cancelled" and warm(jobs)
    assert not (jobs.store.root / "began-late").exists()


@pytest.mark.slow
def test_many_threads_ask_at_once_and_each_gets_its_own_answer(jobs):
    wrong = []

    def session(number):
        for step in range(20):
            value = (number * 7 + step) % 40  # sessions ask equal things too
            try:
                run = jobs.request(Undeclared("echo", {"value": value, "name": f"n{value}"}))
                if run.numbers["value"] != value or run.array("group")[0, 0] != value:
                    wrong.append((number, step))
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=session, args=(number,)) for number in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert wrong == [] and len({run.numbers["pid"] for run in jobs.store.list("echo", limit=100)}) == 1


@pytest.mark.slow
def test_a_request_that_kills_the_worker_gets_a_sentence_and_the_others_an_answer(jobs):
    job = jobs.submit(Undeclared("stubborn", {"name": "s"}))
    began(jobs, "s")
    answers = []
    ask = threading.Thread(
        target=lambda: answers.append(jobs.request(Undeclared("echo", {"value": 5})).numbers["value"])
    )
    ask.start()
    until(lambda: len(jobs._keeper.process._calls) == 2)
    os.kill(jobs.status()["pid"], signal.SIGKILL)
    ask.join(SLOW)
    assert answers == [5]
    status = ended(jobs, job)
    assert status.state == "interrupted" and "signal 9" in status.error and "resume" in status.error
    with pytest.raises(AnalysisError, match=r"stopped while it ran die \(it was killed \(signal 9\)"):
        jobs.request(Undeclared("die", {}))
    assert jobs.request(Undeclared("echo", {"value": 6})).numbers["value"] == 6


def test_an_equal_request_is_not_repeated_by_the_queue(jobs):
    run = jobs.request(Undeclared("echo", {"value": 3}))
    done = jobs.watch(jobs.submit(Undeclared("echo", {"value": 3})))
    assert (done.state, done.run, done.fraction) == ("done", run.id, 1.0)


@pytest.mark.slow
def test_a_worker_that_cannot_start_is_said(tmp_path):
    store = RunStore(tmp_path)
    jobs = Jobs(store, "tests.no_such_module:STUDIES")
    with pytest.raises(AnalysisError, match=r"it could not start: ModuleNotFoundError.*worker.log"):
        jobs.request(Undeclared("echo", {}))
    status = ended(jobs, jobs.submit(Undeclared("echo", {})))
    assert status.state == "failed" and "could not start" in status.error
    jobs.close()
    with pytest.raises(AnalysisError, match="was closed"):
        jobs.request(Undeclared("echo", {}))


@pytest.mark.slow
def test_whoever_waits_is_told_how_far_a_request_is_and_may_end_it(jobs):
    """`gate` waits, says so and what can be drawn; what `tell` raises comes back, and the worker goes on to others."""
    reported, drawn = [], []

    class Enough(BaseException):
        pass

    def tell(done, stage, left, so_far):
        reported.append((done, stage))
        drawn.append(so_far)
        if len(reported) == 2:
            raise Enough

    with pytest.raises(Enough):
        jobs.compute(Undeclared("gate", {"name": "told"}), timeout=SLOW * 3, tell=tell)
    assert all(0 <= done <= 1 and stage for done, stage in reported)
    assert drawn[-1]["step"] == [1, 2], "it comes along, and stays with what is told later"
    until(lambda: not jobs._keeper.process.running)
    assert jobs.request(Undeclared("echo", {"value": 1})).numbers["value"] == 1
