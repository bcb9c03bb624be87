"""How all tests are run: in two halves that together are all of them."""

import subprocess
import sys

from tests import __main__ as halves


def test_both_halves_run_and_the_worse_status_counts(monkeypatch):
    called = []
    monkeypatch.setattr(subprocess, "call", lambda command: called.append(command[1:]) or len(called) == 1)
    assert halves.main([]) == 1, "the first half failed, the second ran"
    assert [command[3] for command in called] == ["not slow and not browser", "not slow and browser"]
    assert halves.main(["-k", "focus"]) == 0 and called[2] == ["-m", "pytest", "-k", "focus"]


def test_the_command_is_there(root):
    done = subprocess.run([sys.executable, "-m", "tests", "--version"], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0 and "pytest" in done.stdout + done.stderr
