"""How all tests are run: side by side in one go, the long ones when they are asked for."""

import subprocess

from tests import __main__ as door
from tests.progress import Progress


def test_the_long_ones_run_when_asked_and_arguments_go_to_pytest(monkeypatch):
    called = []
    monkeypatch.setattr(subprocess, "call", lambda command, **how: called.append(command[3:]) or 1)
    assert door.main([]) == door.main(["--all"]) == door.main(["--all", "-k", "ray"]) == 1
    usual, whole, some = called
    assert "-m" not in usual and ["--dist", "worksteal"] == usual[-2:] and "tests.progress" in usual
    assert whole == ["-m", "", *usual] and some == ["-m", "", "-k", "ray"]
    assert door.main(["-k", "focus"]) == 1 and called[-1] == ["-k", "focus"]


def test_progress_tells_shares_failures_and_what_is_left(monkeypatch, pytestconfig):
    said, report = [], type("Report", (), {"failed": False, "when": "teardown", "nodeid": "tests/x.py::test_x"})
    progress = Progress(pytestconfig)
    monkeypatch.setattr(progress, "say", said.append)
    progress.begin(["tests/x.py::test_x"] * 38 + ["tests/browser/test_y.py::test_y"])
    progress.pytest_runtest_logreport(type("Failed", (report,), {"failed": True, "when": "call"}))
    for _ in range(38):
        progress.pytest_runtest_logreport(report)
    progress.pytest_runtest_logreport(type("Browser", (report,), {"nodeid": "tests/browser/test_y.py::test_y"}))
    assert said[0].startswith("39 tests (1 in Chromium)") and said[1] == "FAILED tests/x.py::test_x"
    assert said[-1].lstrip().startswith("100%") and "39 of 39 tests, 1 failed" in said[-1] and "to go" in said[-2]


def test_pytest_takes_what_it_is_asked(monkeypatch, root):
    called = []
    monkeypatch.setattr(subprocess, "call", lambda command, **how: called.append(command) or 0)
    door.main([])
    command = [*called[0], "-n", "0", "tests/docs/test_install.py"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0 and "100%" in done.stdout and "passed" in done.stdout, done.stdout + done.stderr
