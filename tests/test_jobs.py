"""The worker and its jobs: progress, cancel, served requests, and every process killed in the middle of its work."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from analysis import errors
from analysis.errors import AnalysisError, BadSetting, BadText, Busy, Cancelled, TooLarge
from analysis.jobs import Jobs, JobStatus, keeper, runner, table
from analysis.jobs.lease import Lease, is_alive
from analysis.jobs.wire import describe_error, messages, rebuild_error
from analysis.limits import Limits
from analysis.runs import RunStore

ROOT = Path(__file__).parents[1]
STUDIES = "tests.fake_studies:STUDIES"
SLOW = 20  # seconds a loaded machine may need for what takes a tenth of one


@pytest.fixture
def jobs(tmp_path):
    yield from opened(tmp_path / "state")


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """One client for all tests that leave its worker alive."""
    yield from opened(tmp_path_factory.mktemp("calm"))


def opened(root):
    store = RunStore(root)
    jobs = Jobs(store, STUDIES)
    jobs.store = store
    yield jobs
    jobs.close()
    store.close()


def until(condition, seconds=SLOW):
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)
    return value


def ended(jobs, job_id, seconds=SLOW):
    return until(lambda: (status := jobs.watch(job_id)).ended and status, seconds)


def began(jobs, name):
    until((jobs.store.root / f"began-{name}").exists)


def open_gate(jobs, name):
    (jobs.store.root / f"open-{name}").touch()


def warm(jobs):
    return jobs.request("echo", {"value": -1}).numbers["pid"]


# ---- requests


def test_a_request_is_computed_once_and_then_found(jobs):
    run = jobs.request("echo", {"value": 7})
    assert run.numbers["value"] == 7 and not run.cached and run.table("tokens")["position"].tolist() == [7, 8, 9]
    assert run.array("group").shape == (2, 3) and run.seconds < 5 and run.protocol["tokens"] == 100
    os.kill(run.numbers["pid"], signal.SIGKILL)
    again = jobs.request("echo", {"value": 7.0})
    assert again.id == run.id and again.cached and again.numbers["pid"] == run.numbers["pid"]


def test_nothing_starts_before_it_is_needed_and_starting_does_not_wait(jobs):
    assert jobs.status() == {"state": "cold", "pid": None, "memory": 0}
    began_at = time.monotonic()
    jobs.warm()
    assert time.monotonic() - began_at < 0.5 and jobs.status()["state"] == "starting"
    status = until(lambda: (status := jobs.status())["state"] == "ready" and status)
    assert status["memory"] > 10_000_000 and os.path.exists(f"/proc/{status['pid']}") == os.path.exists("/proc")


@pytest.mark.parametrize(
    ("verb", "kind", "words"),
    [
        ("bad-text", BadText, "^the text has 3 characters and 10 are needed: use a longer one.$"),
        (
            "bug",
            AnalysisError,
            r"internal error \(KeyError: 'missing'\). Nothing stored is lost; the log is at .*worker.log",
        ),
        ("wrong", AnalysisError, "TypeError: wrong returned dict, not a Result"),
        ("greedy", TooLarge, "ran out of memory in greedy"),
        ("nothing", BadSetting, "There is no study 'nothing'; there are: echo, gate"),
    ],
)
def test_an_error_of_a_study_arrives_as_itself(calm, verb, kind, words):
    with pytest.raises(AnalysisError, match=words) as caught:
        calm.request(verb, {})
    assert type(caught.value) is kind
    pid = warm(calm)
    with pytest.raises(kind):
        calm.request(verb, {})
    assert calm.status()["pid"] == pid
    if verb == "bug":
        assert 'in bug\n    return {}["missing"]' in (calm.store.root / "worker.log").read_text()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"layer": "3"}, "layer of typed must be a whole number or nothing, and '3' was given"),
        ({"layer": 2.5}, "must be a whole number"),
        ({"layer": True}, "must be a whole number"),
        ({"top": None}, "top of typed must be a whole number"),
        ({"top": [3]}, "must be a whole number"),
        ({"rate": "nan"}, "rate of typed must be a number"),
        ({"rate": float("nan")}, "only finite numbers"),
        ({"rate": float("inf")}, "only finite numbers"),
        ({"content": 1}, "must be true or false"),
        ({"model": {"name": {"deep": 1}}}, "model of typed must be text"),
        ({"model": "x" * 3000}, "3,000 characters and the limit is 2,000"),
        ({"model": "x" * 30_000}, "the limit is 16,384"),
        ({"context": "mine"}, "has no argument 'context'; it has: model, layer"),
        ({"__class__": "x"}, "has no argument"),
        ({"a": [[[[[[[[[1]]]]]]]]]}, "nested deeper"),
        ({3: 1}, "names are text"),
        ([], "named arguments"),
    ],
)
def test_forged_arguments_are_refused_with_a_sentence(calm, args, words):
    with pytest.raises(BadSetting, match=words):
        calm.request("typed", args)


def test_arguments_of_the_right_type_pass(calm):
    numbers = calm.request("typed", {"layer": 3.0, "rate": 1, "content": False, "model": "../../etc"}).numbers
    assert numbers == {"model": "../../etc", "layer": 3, "rate": 1.0, "content": False, "top": 3}
    with pytest.raises(BadSetting, match="gate needs the argument 'name'"):
        calm.request("gate", {})


@pytest.mark.parametrize("verb", ["../x", "", "A", "a" * 50, None, "describe;"])
def test_forged_verbs_reach_no_worker(jobs, verb):
    for ask in (jobs.request, jobs.submit):
        with pytest.raises(BadSetting, match="not the name of a study"):
            ask(verb, {})
    assert jobs.status()["state"] == "cold"


@pytest.mark.parametrize("job_id", ["../../x", "", None, "0" * 12])
def test_forged_job_ids_are_refused(calm, job_id):
    for ask in (calm.watch, calm.cancel, calm.resume):
        with pytest.raises(BadSetting, match="job"):
            ask(job_id)


def test_describe(calm):
    said = calm.describe()
    assert said["methods"] == {"focus": {"help": "groups"}} and "echo" in said["verbs"] and "bad-text" in said["verbs"]


def test_what_a_library_prints_goes_to_the_log(calm):
    assert calm.request("shout", {}).numbers == {"heard": True}
    assert calm.request("echo", {"value": 1}).numbers["value"] == 1
    log = (calm.store.root / "worker.log").read_text()
    assert '{"id": "forged"}' in log and "from a child" in log


def test_a_request_without_an_answer_ends_in_time_and_the_next_one_is_answered(calm):
    pid = warm(calm)
    with pytest.raises(Busy, match=r"did not answer gate within 0 s and is still at it"):
        calm.request("gate", {"name": "a"}, timeout=0.3)
    assert calm.request("echo", {"value": 2}).numbers == {**calm.request("echo", {"value": 2}).numbers, "pid": pid}
    assert calm.store.list("gate") == []


def test_a_timed_out_request_that_has_not_begun_never_begins(jobs, monkeypatch):
    monkeypatch.setattr(runner, "GRACE", 0.3)
    job = jobs.submit("stubborn", {"name": "s"})
    began(jobs, "s")
    with pytest.raises(Busy, match="is busy with other work"):
        jobs.request("gate", {"name": "late"}, timeout=0.2)
    jobs.cancel(job)
    assert ended(jobs, job).state == "cancelled" and warm(jobs)
    assert not (jobs.store.root / "began-late").exists()


def test_many_threads_ask_at_once_and_each_gets_its_own_answer(calm):
    wrong = []

    def session(number):
        for step in range(20):
            value = (number * 7 + step) % 40  # sessions ask equal things too
            try:
                run = calm.request("echo", {"value": value, "name": f"n{value}"})
                if run.numbers["value"] != value or run.array("group")[0, 0] != value:
                    wrong.append((number, step))
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=session, args=(number,)) for number in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert wrong == [] and len({run.numbers["pid"] for run in calm.store.list("echo", limit=100)}) == 1


def test_a_request_that_kills_the_worker_gets_a_sentence_and_the_others_an_answer(jobs):
    job = jobs.submit("stubborn", {"name": "s"})
    began(jobs, "s")
    answers = []
    ask = threading.Thread(target=lambda: answers.append(jobs.request("echo", {"value": 5}).numbers["value"]))
    ask.start()
    until(lambda: len(jobs._keeper.process._calls) == 2)
    os.kill(jobs.status()["pid"], signal.SIGKILL)
    ask.join(SLOW)
    assert answers == [5]
    status = ended(jobs, job)
    assert status.state == "interrupted" and "signal 9" in status.error and "resume" in status.error
    with pytest.raises(AnalysisError, match=r"stopped while it ran die \(it was killed \(signal 9\)"):
        jobs.request("die", {})
    assert jobs.request("echo", {"value": 6}).numbers["value"] == 6


def test_an_equal_request_is_not_repeated_by_the_queue(calm):
    run = calm.request("echo", {"value": 3})
    done = calm.watch(calm.submit("echo", {"value": 3}))
    assert (done.state, done.run_id, done.fraction) == ("done", run.id, 1.0)


def test_a_worker_that_cannot_start_is_said(tmp_path):
    store = RunStore(tmp_path)
    jobs = Jobs(store, "tests.no_such_module:STUDIES")
    with pytest.raises(AnalysisError, match=r"it could not start: ModuleNotFoundError.*worker.log"):
        jobs.request("echo", {})
    status = ended(jobs, jobs.submit("echo", {}))
    assert status.state == "failed" and "could not start" in status.error
    jobs.close()
    with pytest.raises(AnalysisError, match="was closed"):
        jobs.request("echo", {})


# ---- jobs


def test_a_job_reports_how_far_it_is(jobs):
    job = jobs.submit("gate", {"name": "a"}, session="one")
    status = until(lambda: (status := jobs.watch(job)).seconds_left and status)
    assert isinstance(status, JobStatus) and status.state == "running" and 0 < status.fraction <= 0.9
    assert status.stage == "waiting at the gate" and 0 < status.seconds_left < 60 and status.queue_position == 0
    assert [other.id for other in jobs.active("one")] == [job] and jobs.active("two") == []
    assert jobs.status()["state"] == "busy"
    open_gate(jobs, "a")
    status = ended(jobs, job)
    assert (status.state, status.fraction, status.error, status.seconds_left) == ("done", 1.0, None, None)
    assert jobs.store.open(status.run_id).verb == "gate" and status.created <= status.started <= status.ended
    assert jobs.active() == [] and [other.id for other in jobs.recent("one")] == [job]


def test_requests_are_served_inside_a_long_job_which_does_not_notice(jobs):
    job = jobs.submit("gate", {"name": "a"})
    began(jobs, "a")
    answers = []
    for value in range(5):
        answers.append(jobs.request("echo", {"value": value}, timeout=SLOW).numbers["value"])
        jobs.request("reseed", {"seed": value}, timeout=SLOW)
        assert jobs.watch(job).stage != "request"
    with pytest.raises(BadText):
        jobs.request("bad-text", {})
    with pytest.raises(AnalysisError, match="KeyError"):
        jobs.request("bug", {})
    with pytest.raises(Busy):
        jobs.request("gate", {"name": "inner"}, timeout=0.3)
    assert answers == list(range(5)) and jobs.watch(job).state == "running"
    open_gate(jobs, "a")
    status = ended(jobs, job)
    assert status.state == "done" and jobs.store.open(status.run_id).numbers["same_draw"]


def test_jobs_wait_in_a_queue_and_know_their_place(jobs):
    first = jobs.submit("gate", {"name": "a"})
    began(jobs, "a")
    second, third = jobs.submit("gate", {"name": "b"}), jobs.submit("count", {"name": "c"})
    assert jobs.submit("gate", {"name": "b"}) == second  # a double click
    assert [jobs.watch(job).queue_position for job in (first, second, third)] == [0, 1, 2]
    jobs.cancel(second)
    cancelled = jobs.watch(second)
    assert cancelled.state == "cancelled" and cancelled.started is None and "before it began" in cancelled.error
    assert jobs.watch(third).queue_position == 1
    open_gate(jobs, "a")
    assert ended(jobs, first).state == ended(jobs, third).state == "done"
    assert not (jobs.store.root / "began-b").exists()


def test_one_session_cannot_fill_the_queue(jobs, monkeypatch):
    monkeypatch.setattr(table, "limits", lambda: Limits(jobs_each=2, jobs_all=3))
    for name in ("a", "b"):
        jobs.submit("gate", {"name": name}, session="one")
    with pytest.raises(Busy, match="2 jobs of yours are waiting or running and 2 is the limit"):
        jobs.submit("gate", {"name": "c"}, session="one")
    jobs.submit("gate", {"name": "c"}, session="two")
    with pytest.raises(Busy, match="3 jobs in all"):
        jobs.submit("gate", {"name": "d"}, session="three")
    for job in jobs.active():
        jobs.cancel(job.id)


def test_a_running_job_leaves_at_its_next_border_when_cancelled(jobs):
    pid = warm(jobs)
    job = jobs.submit("gate", {"name": "a"})
    began(jobs, "a")
    jobs.cancel(job)
    status = ended(jobs, job, 4)
    assert status.state == "cancelled" and "cancelled" in status.error and jobs.store.list("gate") == []
    jobs.cancel(job)
    assert jobs.watch(job) == status and warm(jobs) == pid and jobs.status()["pid"] == pid


def test_a_job_that_never_comes_to_a_border_is_killed(jobs, monkeypatch):
    monkeypatch.setattr(runner, "GRACE", 0.5)
    job = jobs.submit("stubborn", {"name": "s"})
    began(jobs, "s")
    pid, answers = jobs.status()["pid"], []
    ask = threading.Thread(target=lambda: answers.append(jobs.request("echo", {"value": 5}).numbers["pid"]))
    ask.start()
    jobs.cancel(job)
    status = ended(jobs, job)
    ask.join(SLOW)
    assert status.state == "cancelled" and "its worker was replaced" in status.error
    assert len(answers) == 1 and answers[0] != pid
    assert ended(jobs, jobs.submit("count", {})).state == "done"


def test_a_request_served_inside_a_killed_job_is_put_to_the_next_worker(jobs, monkeypatch):
    monkeypatch.setattr(runner, "GRACE", 0.3)
    job = jobs.submit("gate", {"name": "outer"})
    began(jobs, "outer")
    answers = []
    ask = threading.Thread(target=lambda: answers.append(jobs.request("gate", {"name": "inner"}).verb))
    ask.start()
    began(jobs, "inner")
    jobs.cancel(job)
    assert ended(jobs, job).state == "cancelled"
    open_gate(jobs, "inner")
    ask.join(SLOW)
    assert answers == ["gate"]


def test_a_failed_job_carries_the_sentence(calm):
    status = ended(calm, calm.submit("bad-text", {}))
    assert (status.state, status.run_id) == ("failed", None) and status.error.startswith("the text has 3 characters")
    assert "no study" in ended(calm, calm.submit("nothing", {})).error
    with pytest.raises(BadSetting, match="is done: only an interrupted"):
        calm.resume(ended(calm, calm.submit("count", {})).id)


def test_a_killed_worker_interrupts_its_job_which_resumes_from_its_checkpoint(jobs):
    job = jobs.submit("count", {"steps": 30, "wait_at": 20}, session="one")
    until(lambda: jobs.watch(job).stage == "holding")
    waiting = jobs.submit("echo", {"value": 9})
    os.kill(jobs.status()["pid"], signal.SIGKILL)
    assert ended(jobs, job).state == "interrupted"
    assert ended(jobs, waiting).state == "done"  # the next job runs
    again = jobs.resume(job)
    status = ended(jobs, again)
    assert again != job and status.state == "done" and jobs.store.open(status.run_id).numbers["began_at"] == 20
    assert again in [other.id for other in jobs.recent("one")] and jobs.watch(job).state == "interrupted"


def test_a_stopped_worker_holds_up_neither_requests_nor_cancel(jobs, monkeypatch):
    monkeypatch.setattr(runner, "GRACE", 0.5)
    pid = warm(jobs)
    job = jobs.submit("gate", {"name": "a"})
    began(jobs, "a")
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(Busy):
        jobs.request("echo", {"value": 1, "name": "x" * 1900}, timeout=0.3)
    jobs.cancel(job)
    assert (
        ended(jobs, job).state == "cancelled"
        and warm(jobs)
        and jobs.request("echo", {"value": 1}).numbers["pid"] != pid
    )


def test_a_request_nobody_waits_for_is_ended_when_it_hangs(jobs, monkeypatch):
    monkeypatch.setattr(keeper, "HUNG", 0.0)
    with pytest.raises(Busy):
        jobs.request("stubborn", {}, timeout=1.5)
    assert jobs.request("echo", {"value": 1}).numbers["value"] == 1


def gone(pid):
    """Whether the process has ended, also when nobody has asked for its exit status yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


APP = """
import sys, time
from analysis.jobs import Jobs
from analysis.runs import RunStore
jobs = Jobs(RunStore(sys.argv[1]), "tests.fake_studies:STUDIES")
names = [jobs.submit("count", {"steps": 30, "wait_at": 20}), jobs.submit("echo", {"value": 1})]
while jobs.watch(names[0]).stage != "holding":
    time.sleep(0.01)
print(*names, jobs.status()["pid"], flush=True)
sys.stdin.read()
"""


def start_app(root):
    return subprocess.Popen(
        [sys.executable, "-c", APP, str(root)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_a_killed_app_interrupts_its_jobs_and_its_worker_ends(jobs):
    app = start_app(jobs.store.root)
    job, waiting, pid = app.stdout.readline().split()
    assert jobs.watch(job).state == "running" and jobs.watch(waiting).queue_position == 1  # another app sees them
    app.kill()
    app.communicate()
    status = ended(jobs, job)
    assert status.state == jobs.watch(waiting).state == "interrupted" and "resume it" in status.error
    assert gone(int(pid))
    again = jobs.resume(job)
    run = jobs.store.open(ended(jobs, again).run_id)
    assert run.numbers["began_at"] == 20 and ended(jobs, jobs.resume(waiting)).state == "done"


def test_another_app_cancels_a_job_by_its_id(jobs):
    app = start_app(jobs.store.root)
    job, waiting, _ = app.stdout.readline().split()
    jobs.cancel(waiting)
    jobs.cancel(job)
    assert ended(jobs, job).state == ended(jobs, waiting).state == "cancelled"
    app.communicate("")


def test_closing_interrupts_and_a_fresh_client_resumes(tmp_path):
    store = RunStore(tmp_path)
    first = Jobs(store, STUDIES)
    job = first.submit("count", {"steps": 30, "wait_at": 20})
    until(lambda: first.watch(job).stage == "holding")
    waiting = first.submit("echo", {"value": 4})
    first.close()
    first.close()
    second = Jobs(store, STUDIES)
    assert second.watch(job).state == second.watch(waiting).state == "interrupted"
    assert store.open(ended(second, second.resume(job)).run_id).numbers["began_at"] == 20
    second.close()
    assert list((tmp_path / "owners").iterdir()) == []


def test_the_log_stays_bounded(jobs):
    (jobs.store.root / "worker.log").write_bytes(b"x" * 9_000_000)
    warm(jobs)
    assert (jobs.store.root / "worker.log").stat().st_size <= 1_000_000


# ---- the parts


def test_a_served_request_leaves_the_job_its_random_state_and_gradients():
    torch = pytest.importorskip("torch")
    from analysis.jobs.worker import _untouched

    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    expected = random.random(), np.random.rand(), torch.rand(1).item()
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    with torch.inference_mode():
        with _untouched():
            random.seed(2), np.random.seed(2), torch.manual_seed(2)
            weight = torch.ones(1, requires_grad=True)
            (weight * 2).sum().backward()
        assert torch.is_inference_mode_enabled() and weight.grad.item() == 2
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == expected


def test_a_lease_ends_with_its_holder_and_not_before(tmp_path):
    lease, other = Lease(tmp_path), Lease(tmp_path)
    assert is_alive(tmp_path, lease.owner) and is_alive(tmp_path, other.owner)
    lease.release()
    lease.release()
    assert not is_alive(tmp_path, lease.owner) and is_alive(tmp_path, other.owner) and not is_alive(tmp_path, "unknown")
    os.close(other.fd)  # as the system does for a killed process: the file is still there
    assert not is_alive(tmp_path, other.owner)
    third = Lease(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [f"{third.owner}.lock"]
    third.release()


def test_lines_that_mean_nothing_are_skipped(tmp_path, monkeypatch):
    monkeypatch.setattr("analysis.jobs.wire.MAX_LINE", 50)
    path = tmp_path / "lines"
    path.write_bytes(b'{"a": 1}\n\n[1]\nnot json\n\xff\xfe\n{"b": "' + b"x" * 200 + b'"}\n{"c": 3}\n{"cut')
    with path.open("rb") as stream:
        assert list(messages(stream)) == [{"a": 1}, {"c": 3}]


def test_errors_travel_by_class_and_sentence():
    class Inner(BadSetting):
        pass

    for error in (BadText("a"), Cancelled("b"), Inner("c")):
        again = rebuild_error(describe_error(error))
        assert str(again) == str(error) and isinstance(error, type(again)) and vars(errors)[type(again).__name__]
    for forged in ({"type": "SystemExit", "message": "x"}, {"type": "__name__"}, {}):
        assert type(rebuild_error(forged)) is AnalysisError
