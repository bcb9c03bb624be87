"""The tests, side by side, and after them those that hold a time limit, alone. `--all` adds the long ones (Chromium,
hostile input, Ray, the installed wheel). ARGS go to pytest instead."""

import os
import subprocess
import sys

MAX_PROCESSES = 4  # each holds a model, an app and its worker, with `--all` a browser too, about 2 GB together


def main(arguments: list[str]) -> int:
    """The exit status of pytest."""
    chosen = [word for word in arguments if word != "--all"]
    long = len(chosen) < len(arguments)
    if chosen:
        return _pytest(*(["-m", ""] if long else []), *chosen)
    # Each process imports everything and collects all tests first (14 s); a browser waits, so it gets one more.
    processes = str(min(max(os.cpu_count() or 1, 2) + long, MAX_PROCESSES))
    together = ["-q", "--durations=12", "-n", processes, "--dist", "worksteal"]
    if not long:
        return _pytest("-m", "not slow and not alone", *together)
    status = _pytest("-m", "not alone", *together)
    return _pytest("-m", "alone", "-q") or status


def _pytest(*arguments: str) -> int:
    # With that variable every process would compile all sources again.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.call([sys.executable, "-m", "pytest", *arguments], env=environment)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
