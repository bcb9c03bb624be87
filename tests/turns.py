"""Turns: tests share the machine, and one that holds a time limit has it to itself, over all processes of a run."""

import contextlib
import fcntl
import tempfile
from collections.abc import Iterator
from pathlib import Path


class Turns:
    """The turns of one process; `run` names the run of all of them."""

    def __init__(self, run: str):
        self.paths = [Path(tempfile.gettempdir(), f"focuscope-{run}-{name}") for name in ("gate", "room")]
        self.gate, self.room = (path.open("w") for path in self.paths)

    @contextlib.contextmanager
    def taken(self, alone: bool) -> Iterator[None]:
        """One test, once nobody who is alone runs; if it is itself `alone`, once nobody runs."""
        fcntl.flock(self.gate, fcntl.LOCK_EX)  # who waits to be alone holds the gate, so that no other test begins
        fcntl.flock(self.room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(self.gate, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(self.room, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give back the files; whoever has them open goes on."""
        for file, path in zip((self.gate, self.room), self.paths, strict=True):
            file.close()
            path.unlink(missing_ok=True)
