"""Work without a stopwatch: a clock that runs on what a test says, and steps of Python in the place of seconds."""

import sys
from collections.abc import Callable


class Clock:
    """Called, it tells the seconds: one more at every look, and what a slow fake has added to `seconds` meanwhile."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self) -> float:
        self.seconds += 1
        return self.seconds


def steps(act: Callable[[], object]) -> int:
    """How many functions, Python's own among them, this thread calls during `act()`."""
    called = []
    sys.setprofile(lambda frame, event, arg: called.append(None) if event in ("call", "c_call") else None)
    try:
        act()
    finally:
        sys.setprofile(None)
    return len(called)
