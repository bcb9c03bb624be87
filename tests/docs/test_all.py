"""How all tests are run: side by side, then those that hold a time limit, the long ones when they are asked for."""

import re
import subprocess

import pytest

from tests import __main__ as door
from tests.progress import Progress


def test_the_long_ones_run_when_asked_and_arguments_go_to_pytest(monkeypatch):
    called = []
    monkeypatch.setattr(subprocess, "call", lambda command, **how: called.append(command[3:]) or 0)
    assert door.main([]) == door.main(["--all"]) == door.main(["--all", "-k", "ray"]) == door.main(["-k", "focus"]) == 0
    usual, alone, whole, whole_alone, some, focus = called
    assert usual[:2] == ["-m", "not alone and not slow"] and alone[:2] == ["-m", "alone and not slow"]
    assert alone[-1] == "tests/browser"
    assert whole == ["-m", "not alone", *usual[2:]] and whole_alone == ["-m", "alone", *alone[2:], "tests/stress"]
    assert usual[-2:] == ["--dist", "worksteal"] and "-n" not in alone
    assert "tests.progress" in usual and "tests.progress" in alone
    assert some == ["-m", "", "-k", "ray"] and focus == ["-k", "focus"]


@pytest.mark.parametrize("together, alone, status", [(0, 0, 0), (1, 0, 1), (0, 1, 1), (2, 1, 2), (-9, 0, -9)])
def test_a_failure_of_either_part_is_a_failure_and_both_run(monkeypatch, together, alone, status):
    left = [together, alone]
    monkeypatch.setattr(subprocess, "call", lambda command, **how: left.pop(0))
    assert door.main([]) == status and not left


def test_what_holds_a_time_limit_runs_alone(root):
    """A test of Chromium that compares seconds with a limit has the marker."""
    limit = re.compile(r"assert .*(took|seconds|median).* <=? ")
    found = 0
    for path in (root / "tests" / "browser").glob("test_*.py"):
        for test in re.split(r"\n\n\n(?=@|def )", path.read_text(encoding="utf-8")):
            if limit.search(test):
                found += 1
                assert "@pytest.mark.alone" in test, f"{path.name}: {test[:120]}"
    assert found == 6
    marked = [path for path in root.glob("tests/**/test_*.py") if "@pytest.mark.alone" in path.read_text("utf-8")]
    assert {path.parent.name for path in marked if path.name != "test_all.py"} == {"browser", "stress"}


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
