"""When a worker starts, and how it is known that one has fallen silent."""

import os
import time

import pytest

from analysis.errors import Busy
from analysis.jobs import keeper
from analysis.jobs.process import Call, Connection, WorkerLost
from tests.made.working import until


class Mute(Connection):
    """A worker that never says a word: who waits for it waits for ever."""

    def _deliver(self, message):
        pass

    def close(self, grace):
        self._end("it was mute")


class Timed(Mute):
    """A worker that is heard of when a test says so, at the seconds that it says."""

    def __init__(self):
        super().__init__()
        self.seconds = 0.0
        self.clock = lambda: self.seconds

    def kill(self, blame=None):
        self._blame, self._dying = blame, True
        self._end("it was ended")


def test_a_worker_without_a_heartbeat_for_20_seconds_is_silent():
    started = []
    keep = keeper.Keeper(lambda: started.append(Timed()) or started[-1], "worker.log")
    worker, call = keep.live(), Call("job", "gate", {})
    worker.send(call)
    worker._hear({"ready": True})
    worker._hear({"begun": call.id})
    worker.seconds = 1000.0
    assert (keep.silent(), keep.state()["state"]) == ({}, "busy"), "one without a heart, as on a cluster, is none"
    worker._hear({"beat": True})
    for seconds, silent in ((1019.0, 0.0), (1020.0, 0.0), (1021.0, 21.0)):
        worker.seconds = seconds
        assert worker.silence == silent
    assert keep.silent() == {call.id: 21.0} and keep.state()["state"] == "silent"
    with pytest.raises(Busy, match="nothing for 21 s"):
        keep.ask("echo", {}, timeout=0.0)
    worker._hear({"beat": True})
    assert keep.silent() == {} and keep.state()["state"] == "busy"
    keep.restart()
    assert keep.live() is worker
    worker.seconds += 21
    keep.restart()
    with pytest.raises(WorkerLost, match="it had said nothing for 21 s"):
        call.answer()
    assert keep.live() is not worker and keep.silent() == {}


def test_nothing_starts_before_it_is_needed_and_starting_does_not_wait(fresh):
    assert fresh.status() == {"state": "cold", "pid": None, "memory": 0}
    start, fresh._keeper._start = fresh._keeper._start, Mute
    fresh.warm()
    assert fresh.status()["state"] == "starting"
    fresh._keeper._start = start
    fresh._keeper.process.close(0)
    fresh.warm()
    status = until(lambda: (status := fresh.status())["state"] == "ready" and status)
    assert status["memory"] > 10_000_000 and os.path.exists(f"/proc/{status['pid']}") == os.path.exists("/proc")


@pytest.mark.slow
def test_a_worker_warmed_later_starts_then_and_never_once_closed(fresh, monkeypatch):
    fresh.warm(after=0.3)
    assert fresh.status()["state"] == "cold"
    until(lambda: fresh._described)
    begun = []
    monkeypatch.setattr(fresh._keeper, "live", lambda: begun.append("a worker"))
    fresh.warm(after=0.3)
    fresh.close()
    time.sleep(0.6)
    assert not begun


def test_what_is_offered_is_asked_for_at_once_and_needs_no_worker_later(fresh):
    fresh.warm()
    until(lambda: fresh._described)
    fresh.close()
    offered = fresh.describe()
    assert offered["methods"] == {"focus": {"help": "groups"}}
