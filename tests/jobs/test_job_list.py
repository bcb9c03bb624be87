"""The list of jobs: what each process writes is seen by all, and files of an earlier program are read."""

import json

import pytest

from analysis.declaration.undeclared import Undeclared
from analysis.errors import BadSetting
from analysis.jobs.table import JobTable


@pytest.fixture
def jobs(tmp_path):
    return JobTable(tmp_path)


def added(jobs, count=3, owner="owner"):
    return [jobs.add(f"{number:012x}", Undeclared("count", {"steps": number}), "me", owner) for number in range(count)]


def test_what_one_process_writes_another_lists(jobs, tmp_path):
    first, second, third = added(jobs)
    again = JobTable(tmp_path)
    jobs.finish(first, "done", run="0" * 12)
    assert again.claim("owner").id == second
    again.progress(second, 0.5, "half", 3.0, {"step": [1, 2]})
    jobs.progress(second, 0.6, "more", 2.0)
    for table in (jobs, again, JobTable(tmp_path)):
        assert [status.id for status in table.recent()] == [third, second, first]
        assert [status.id for status in table.active("me")] == [second, third] and table.active("you") == []
        running, waiting = table.status(second), table.status(third)
        assert (running.state, running.fraction, running.stage, running.args) == ("running", 0.6, "more", {"steps": 1})
        assert (waiting.state, waiting.queue_position) == ("queued", 1) and table.owners() == ["owner"]
        assert table.curve(second) == {"step": [1, 2]}, "it stays until there is another"
    again.ask_cancel(second), again.ask_cancel(third)
    assert jobs.cancel_asked(second) and jobs.status(second).cancel and jobs.status(third).state == "cancelled"
    jobs.interrupt("owner", "It was closed.")
    assert again.status(second).state == "interrupted" and again.owners() == [] and again.status(first).state == "done"
    again.finish(second, "done")
    assert jobs.status(second).error == "It was closed.", "a job ends once"


def test_a_curve_that_comes_late_is_not_shown(jobs):
    (job,) = added(jobs, 1)
    jobs.claim("owner")
    jobs.finish(job, "done")
    jobs.progress(job, 0.9, "late", None, {"step": [1, 2]})
    assert jobs.curve(job) is None and jobs.status(job).fraction == 1.0


def test_only_so_many_ended_jobs_are_kept(jobs, monkeypatch):
    monkeypatch.setattr("analysis.jobs.table.KEPT", 2)
    ids = added(jobs)
    for job in ids:
        jobs.progress(job, 0.1, "", None)
        jobs.finish(job, "failed", error="It ended.")
    new = jobs.add("f" * 12, Undeclared("count"), "me", "owner")
    assert [status.id for status in jobs.recent()] == [new, *ids[:0:-1]]
    with pytest.raises(BadSetting, match="not known here"):
        jobs.status(ids[0])


def test_jobs_of_an_earlier_program_are_listed_and_what_is_none_is_not(jobs, tmp_path):
    """Its files held the row of a table, with the arguments as text and the progress inside."""
    row = {"seq": 7, "id": "a" * 12, "key": "b" * 12, "verb": "count", "args": '{"steps": 3}', "session": "me"}
    row |= {"owner": "gone", "state": "done", "fraction": 1.0, "stage": "", "seconds_left": None, "cancel": 0}
    row |= {"run": "b" * 12, "error": None, "created": "2026-01-01T00:00:00+00:00", "started": None, "ended": None}
    (tmp_path / "jobs" / f"{'a' * 12}.json").write_text(json.dumps(row))
    for number, text in enumerate(("", "[]", "{}", json.dumps(row), json.dumps(row | {"seq": "x"}))):
        (tmp_path / "jobs" / f"{number:012x}.json").write_text(text)
    (job,) = jobs.recent()
    assert (job.state, job.args, job.run, job.fraction) == ("done", {"steps": 3}, "b" * 12, 1.0)
    (new,) = added(jobs, 1)
    assert [status.id for status in jobs.recent()] == [new, "a" * 12]
