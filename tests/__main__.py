"""All tests, side by side: what every change must pass, about eight minutes; `--all` adds the long ones (long walks in
Chromium, hostile input, Ray), under 25 minutes. ARGS go to pytest instead."""

import os
import subprocess
import sys

MOST = 4  # processes: each holds a model, an app, its worker and a browser, about 2 GB together


def main(arguments: list[str]) -> int:
    """The exit status of pytest."""
    rest = [word for word in arguments if word != "--all"]
    chosen = ["-m", ""] if len(rest) < len(arguments) else []
    if not rest:
        processes = str(min(max(os.cpu_count() or 1, 2), MOST))
        rest = [
            "-q",
            "-p",
            "tests.progress",
            "-o",
            "console_output_style=classic",
            "-n",
            processes,
            "--dist",
            "worksteal",
        ]
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}  # compiled once
    return subprocess.call([sys.executable, "-m", "pytest", *chosen, *rest], env=kept)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
