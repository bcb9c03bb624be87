"""How all tests are run: side by side, those that hold a time limit alone, the long ones when they are asked for."""

import contextlib
import fcntl
import os
import re
import subprocess
import time
from threading import Thread

import pytest

from tests import __main__ as door
from tests.progress import Progress, reason
from tests.turns import Turns


def test_the_long_ones_run_when_asked_and_arguments_go_to_pytest(monkeypatch):
    called = []
    monkeypatch.setattr(subprocess, "call", lambda command, **how: called.append(command[3:]) or 0)
    assert door.main([]) == door.main(["--all"]) == door.main(["--all", "-k", "ray"]) == door.main(["-k", "focus"]) == 0
    usual, whole, some, focus = called
    assert usual[:2] == ["-m", "not slow"] and usual[-2:] == ["--dist", "worksteal"] and "tests.progress" in usual
    assert whole == ["-m", "", *usual[2:]]
    assert some == ["-m", "", "-k", "ray"] and focus == ["-k", "focus"]


@pytest.mark.parametrize("status", [0, 1, -9])
def test_a_failure_is_a_failure(monkeypatch, status):
    monkeypatch.setattr(subprocess, "call", lambda command, **how: status)
    assert door.main([]) == status


def test_who_is_alone_waits_for_all_and_nobody_begins_meanwhile():
    early, alone, late, probe = all_turns = [Turns(f"test-{os.getpid()}") for _ in range(4)]
    said = []

    def run(turns, word, by_itself):
        with turns.taken(by_itself):
            said.append(word)

    def gate_is_free() -> bool:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(probe.gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(probe.gate, fcntl.LOCK_UN)
            return True
        return False

    first, second = Thread(target=run, args=(alone, "alone", True)), Thread(target=run, args=(late, "late", False))
    with early.taken(False):
        run(late, "beside", False)
        first.start()
        while gate_is_free():
            time.sleep(0.01)
        second.start()
        second.join(0.1)
        said.append("early ends")
    first.join()
    second.join()
    assert said == ["beside", "early ends", "alone", "late"]
    for turns in all_turns:
        turns.close()


def test_what_holds_a_time_limit_runs_alone(root):
    """A test of Chromium that compares seconds with a limit has the marker."""
    limit = re.compile(r"assert .*(took|seconds|median).* <=? ")
    found = 0
    for path in (root / "tests" / "browser").glob("test_*.py"):
        for test in re.split(r"\n\n\n(?=@|def )", path.read_text(encoding="utf-8")):
            if limit.search(test):
                found += 1
                assert "@pytest.mark.alone" in test, f"{path.name}: {test[:120]}"
    assert found == 7
    marked = [path for path in root.glob("tests/**/test_*.py") if "@pytest.mark.alone" in path.read_text("utf-8")]
    assert {path.parent.name for path in marked if path.name != "test_all.py"} == {"browser", "stress"}


def test_progress_tells_shares_failures_and_what_is_left(monkeypatch, pytestconfig):
    said, report = [], type("Report", (), {"failed": False, "when": "teardown", "nodeid": "tests/x.py::test_x"})
    progress = Progress(pytestconfig)
    monkeypatch.setattr(progress, "say", said.append)
    progress.begin(["tests/x.py::test_x"] * 38 + ["tests/browser/test_y.py::test_y"])
    told = "def test_x():\n>   assert 2 == 3\nE   assert 2 == 3\n\ntests/x.py:1: AssertionError"
    progress.pytest_runtest_logreport(type("Failed", (report,), {"failed": True, "when": "call", "longreprtext": told}))
    for _ in range(38):
        progress.pytest_runtest_logreport(report)
    progress.pytest_runtest_logreport(type("Browser", (report,), {"nodeid": "tests/browser/test_y.py::test_y"}))
    assert said[0].startswith("39 tests (1 in Chromium)") and said[1] == "FAILED tests/x.py::test_x"
    assert said[2] == "E   assert 2 == 3" and reason("a process crashed") == "a process crashed"
    assert said[-1].lstrip().startswith("100%") and "39 of 39 tests, 1 failed" in said[-1] and "to go" in said[-2]


def test_pytest_takes_what_it_is_asked(monkeypatch, root):
    called = []
    monkeypatch.setattr(subprocess, "call", lambda command, **how: called.append(command) or 0)
    door.main([])
    command = [*called[0], "-n", "0", "tests/docs/test_install.py"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0 and "100%" in done.stdout and "passed" in done.stdout, done.stdout + done.stderr
