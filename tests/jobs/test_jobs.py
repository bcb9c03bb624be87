"""Long jobs of the worker: progress, cancel, served requests, and every process killed in the middle of its work."""

import contextlib
import functools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from analysis.declaration.undeclared import Undeclared
from analysis.errors import AnalysisError, BadSetting, BadText, Busy
from analysis.jobs import Jobs, JobStatus, keeper, process as worker_process, runner, table
from analysis.limits import Limits
from analysis.runs import RunStore
from tests.made.working import (
    ENGINES,
    ROOT,
    SLOW,
    STUDIES,
    began,
    emptied,
    ended,
    open_gate,
    opened,
    overdue,
    until,
    warm,
)

BOTH = pytest.mark.parametrize("jobs", ENGINES, indirect=True)  # what a user sees of both engines is the same


@pytest.fixture(scope="module")
def clients(tmp_path_factory):
    """`clients(engine)`: one client of each for all tests, since a worker takes a second to start."""
    with contextlib.ExitStack() as stack:
        open_client = contextlib.contextmanager(opened)
        yield functools.cache(lambda name: stack.enter_context(open_client(tmp_path_factory.mktemp(name), name)))
    if "ray" in sys.modules:
        sys.modules["ray"].shutdown()


@pytest.fixture
def jobs(request, clients):
    return emptied(clients(getattr(request, "param", "processes")))


@BOTH
def test_a_job_reports_how_far_it_is(jobs):
    begun = time.monotonic()
    job = jobs.submit(Undeclared("gate", {"name": "a"}), session="one")
    status = until(lambda: (status := jobs.watch(job)).seconds_left and status)
    longest = (time.monotonic() - begun) * (1 - status.fraction) / (status.fraction - 0.02)  # it first tells of 2%
    assert isinstance(status, JobStatus) and status.state == "running" and 0 < status.fraction <= 0.9
    assert status.stage == "waiting at the gate" and 0 < status.seconds_left <= longest and status.queue_position == 0
    assert [listed.id for listed in jobs.active("one")] == [job] and jobs.active("two") == []
    assert jobs.status()["state"] == "busy" and jobs.curve(job)["step"] == [1, 2]
    open_gate(jobs, "a")
    status = ended(jobs, job)
    assert jobs.curve(job) is None, "a job that is done has a run to draw from"
    assert (status.state, status.fraction, status.error, status.seconds_left) == ("done", 1.0, None, None)
    assert jobs.store.open(status.run).verb == "gate" and status.created <= status.started <= status.ended
    assert jobs.active() == [] and [listed.id for listed in jobs.recent("one")] == [job]


@BOTH
def test_requests_are_served_inside_a_long_job_which_does_not_notice(jobs):
    job = jobs.submit(Undeclared("gate", {"name": "a"}))
    began(jobs, "a")
    answers = []
    for value in range(-5, 0):
        answers.append(jobs.request(Undeclared("echo", {"value": value}), timeout=SLOW).numbers["value"])
        jobs.request(Undeclared("reseed", {"seed": value}), timeout=SLOW)
        assert jobs.watch(job).stage != "request"
    with pytest.raises(BadText):
        jobs.request(Undeclared("bad-text", {}))
    with pytest.raises(AnalysisError, match="KeyError"):
        jobs.request(Undeclared("bug", {}))
    with pytest.raises(Busy):
        jobs.request(Undeclared("gate", {"name": "inner"}), timeout=0.3)
    assert answers == list(range(-5, 0)) and jobs.watch(job).state == "running"
    open_gate(jobs, "a")
    status = ended(jobs, job)
    assert status.state == "done" and jobs.store.open(status.run).numbers["same_draw"]


@BOTH
def test_jobs_wait_in_a_queue_and_know_their_place(jobs):
    first = jobs.submit(Undeclared("gate", {"name": "a"}))
    began(jobs, "a")
    second, third = jobs.submit(Undeclared("gate", {"name": "b"})), jobs.submit(Undeclared("count", {"name": "c"}))
    assert jobs.submit(Undeclared("gate", {"name": "b"})) == second  # a double click
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
        jobs.submit(Undeclared("gate", {"name": name}), session="one")
    with pytest.raises(Busy, match="2 jobs of yours are waiting or running and 2 is the limit"):
        jobs.submit(Undeclared("gate", {"name": "c"}), session="one")
    jobs.submit(Undeclared("gate", {"name": "c"}), session="two")
    with pytest.raises(Busy, match="3 jobs in all"):
        jobs.submit(Undeclared("gate", {"name": "d"}), session="three")
    for job in jobs.active():
        jobs.cancel(job.id)


@BOTH
def test_a_running_job_leaves_at_its_next_border_when_cancelled(jobs, monkeypatch):
    monkeypatch.setattr(runner, "GRACE", 2 * SLOW)  # it is asked, not killed
    pid = warm(jobs)
    job = jobs.submit(Undeclared("gate", {"name": "a"}))
    began(jobs, "a")
    jobs.cancel(job)
    status = ended(jobs, job)
    assert status.state == "cancelled" and "cancelled" in status.error and jobs.store.list("gate") == []
    jobs.cancel(job)
    assert jobs.watch(job) == status and warm(jobs) == pid and jobs.status()["pid"] == pid


@BOTH
def test_a_job_that_never_comes_to_a_border_is_killed(jobs, monkeypatch):
    monkeypatch.setattr(runner, "GRACE", 0.5)
    job = jobs.submit(Undeclared("stubborn", {"name": "s"}))
    began(jobs, "s")
    pid, answers = jobs.status()["pid"], []
    ask = threading.Thread(
        target=lambda: answers.append(jobs.request(Undeclared("echo", {"value": -5})).numbers["pid"])
    )
    ask.start()
    jobs.cancel(job)
    status = ended(jobs, job)
    ask.join(SLOW)
    assert status.state == "cancelled" and "its worker was replaced" in status.error
    assert len(answers) == 1 and answers[0] != pid
    assert ended(jobs, jobs.submit(Undeclared("count", {}))).state == "done"


def test_a_request_served_inside_a_killed_job_is_put_to_the_next_worker(jobs, monkeypatch):
    monkeypatch.setattr(runner, "GRACE", 0.3)
    job = jobs.submit(Undeclared("gate", {"name": "outer"}))
    began(jobs, "outer")
    answers = []
    ask = threading.Thread(target=lambda: answers.append(jobs.request(Undeclared("gate", {"name": "inner"})).verb))
    ask.start()
    began(jobs, "inner")
    jobs.cancel(job)
    assert ended(jobs, job).state == "cancelled"
    open_gate(jobs, "inner")
    ask.join(SLOW)
    assert answers == ["gate"]


def test_a_failed_job_carries_the_sentence(jobs):
    status = ended(jobs, jobs.submit(Undeclared("bad-text", {})))
    assert (status.state, status.run) == ("failed", None) and status.error.startswith("the text has 3 characters")
    assert "no study" in ended(jobs, jobs.submit(Undeclared("nothing", {}))).error
    with pytest.raises(BadSetting, match="is done: only an interrupted"):
        jobs.resume(ended(jobs, jobs.submit(Undeclared("count", {}))).id)


@BOTH
def test_a_killed_worker_interrupts_its_job_which_resumes_from_its_checkpoint(jobs):
    job = jobs.submit(Undeclared("count", {"steps": 30, "wait_at": 20}), session="one")
    until(lambda: jobs.watch(job).stage == "holding")
    waiting = jobs.submit(Undeclared("echo", {"value": -9}))
    os.kill(jobs.status()["pid"], signal.SIGKILL)
    assert ended(jobs, job).state == "interrupted"
    assert ended(jobs, waiting).state == "done"  # the next job runs
    again = jobs.resume(job)
    status = ended(jobs, again)
    assert again != job and status.state == "done" and jobs.store.open(status.run).numbers["began_at"] == 20
    assert again in [listed.id for listed in jobs.recent("one")] and jobs.watch(job).state == "interrupted"


@pytest.mark.slow
def test_a_stopped_worker_holds_up_neither_requests_nor_cancel(jobs, monkeypatch):
    monkeypatch.setattr(runner, "GRACE", 0.5)
    pid = warm(jobs)
    job = jobs.submit(Undeclared("gate", {"name": "a"}))
    began(jobs, "a")
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(Busy):
        jobs.request(Undeclared("echo", {"value": -1, "name": "x" * 1900}), timeout=0.3)
    jobs.cancel(job)
    assert ended(jobs, job).state == "cancelled" and warm(jobs)
    assert jobs.request(Undeclared("echo", {"value": -2})).numbers["pid"] != pid


@pytest.mark.slow
def test_a_stopped_worker_is_told_from_one_that_works_and_another_takes_up_its_job(jobs, monkeypatch):
    monkeypatch.setattr(worker_process, "SILENT", 8.0)  # it beats every 5 s
    pid = warm(jobs)
    job = jobs.submit(Undeclared("count", {"steps": 30, "wait_at": 20}))
    until(lambda: jobs.watch(job).stage == "holding")
    assert jobs.silent() == {} and jobs.status()["state"] == "busy"
    jobs.restart()
    assert jobs.status()["pid"] == pid, "a worker that is heard of is left alone"
    os.kill(pid, signal.SIGSTOP)
    assert until(jobs.silent)[job] > 8 and jobs.status()["state"] == "silent" and jobs.watch(job).state == "running"
    jobs.restart()
    status = ended(jobs, job)
    assert status.state == "done" and jobs.store.open(status.run).numbers["began_at"] == 20, "from its checkpoint"
    assert gone(pid) and jobs.status()["pid"] != pid and jobs.silent() == {}


def test_a_request_nobody_waits_for_is_ended_when_it_hangs(jobs, monkeypatch):
    monkeypatch.setattr(keeper, "HUNG", 0.0)
    with monkeypatch.context() as late, pytest.raises(Busy, match="is still at it"):
        overdue(late)
        jobs.request(Undeclared("stubborn", {}))
    assert jobs.request(Undeclared("echo", {"value": -1})).numbers["value"] == -1


def gone(pid):
    """Whether the process has ended, also when nobody has asked for its exit status yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


APP = """
import sys, time
from analysis.declaration.undeclared import Undeclared
from analysis.jobs import Jobs
from analysis.runs import RunStore
jobs = Jobs(RunStore(sys.argv[1]), "tests.made.fake_studies:STUDIES")
names = [jobs.submit(Undeclared("count", {"steps": 30, "wait_at": 20})), jobs.submit(Undeclared("echo", {"value": -1}))]
while jobs.watch(names[0]).stage != "holding":
    time.sleep(0.01)
print(*names, jobs.status()["pid"], flush=True)
sys.stdin.read()
"""


def start_app(root):
    return subprocess.Popen(
        [sys.executable, "-c", APP, str(root)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.slow
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
    run = jobs.store.open(ended(jobs, again).run)
    assert run.numbers["began_at"] == 20 and ended(jobs, jobs.resume(waiting)).state == "done"


@pytest.mark.slow
def test_another_app_cancels_a_job_by_its_id(jobs):
    app = start_app(jobs.store.root)
    job, waiting, _ = app.stdout.readline().split()
    jobs.cancel(waiting)
    jobs.cancel(job)
    assert ended(jobs, job).state == ended(jobs, waiting).state == "cancelled"
    app.communicate("")


@pytest.mark.slow
def test_closing_interrupts_and_a_fresh_client_resumes(tmp_path):
    store = RunStore(tmp_path)
    first = Jobs(store, STUDIES)
    job = first.submit(Undeclared("count", {"steps": 30, "wait_at": 20}))
    until(lambda: first.watch(job).stage == "holding")
    waiting = first.submit(Undeclared("echo", {"value": -4}))
    first.close()
    first.close()
    second = Jobs(store, STUDIES)
    assert second.watch(job).state == second.watch(waiting).state == "interrupted"
    assert store.open(ended(second, second.resume(job)).run).numbers["began_at"] == 20
    second.close()
    assert list((tmp_path / "owners").iterdir()) == []


@pytest.mark.slow
def test_the_log_stays_bounded(fresh):
    (fresh.store.root / "worker.log").write_bytes(b"x" * 9_000_000)
    warm(fresh)
    assert (fresh.store.root / "worker.log").stat().st_size <= 1_000_000
