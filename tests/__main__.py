"""All tests: first those without a browser, side by side, then those in a browser, one at a time. ARGS: what pytest is
asked instead."""

import subprocess
import sys

HALVES = (
    ("not slow and not browser", "-n", "auto", "--maxprocesses", "4", "--dist", "loadfile"),
    ("not slow and browser",),
)


def main(arguments: list[str]) -> int:
    """The exit status: of pytest with ARGS, or the worse of both halves; the second runs also when the first fails."""
    pytest = [sys.executable, "-m", "pytest"]
    if arguments:
        return subprocess.call([*pytest, *arguments])
    return max([subprocess.call([*pytest, "-m", *half]) for half in HALVES])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
