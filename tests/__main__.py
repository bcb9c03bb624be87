"""All tests, side by side; one that holds a time limit has the machine to itself. `--all` adds the long ones (long
walks in Chromium, hostile input, Ray); `tests/progress.py` says what both take. ARGS go to pytest instead."""

import os
import subprocess
import sys

MOST = 4  # processes: each holds a model, an app, its worker and a browser, about 2 GB together
LOOK = ["-q", "-p", "tests.progress", "-o", "console_output_style=classic", "--durations=12"]


def main(arguments: list[str]) -> int:
    """The exit status of pytest."""
    rest = [word for word in arguments if word != "--all"]
    long = len(rest) < len(arguments)
    if rest:
        return _pytest([*(["-m", ""] if long else []), *rest])
    processes = str(min(max(os.cpu_count() or 1, 2) + 1, MOST))  # a browser waits: one more than cores
    return _pytest(["-m", "" if long else "not slow", *LOOK, "-n", processes, "--dist", "worksteal"])


def _pytest(arguments: list[str]) -> int:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}  # compiled once
    return subprocess.call([sys.executable, "-m", "pytest", *arguments], env=kept)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
