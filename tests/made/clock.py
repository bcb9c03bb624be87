"""A clock that runs on what a test says, so that no measured time decides what it finds."""


class Clock:
    """Called, it tells the seconds: one more at every look, and what a slow fake has added to `seconds` meanwhile."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self) -> float:
        self.seconds += 1
        return self.seconds
