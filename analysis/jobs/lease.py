"""Who still lives: an owner of jobs holds a lock on a file, which the system frees however the owner dies.

No heartbeat to miss, no clock to trust, no process number that another process inherits.
"""

import os
import secrets
from pathlib import Path

from ..files import hold, is_free, sweep


class Lease:
    """Held from creation to `release()` or death. `owner` is its name in the job table. The worker inherits `fd`, so
    jobs count as alive until app and worker are both gone and a resumed job never meets its former self."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        # Of the dead.
        sweep(folder, "*.lock")
        self.owner = secrets.token_hex(6)
        self._path = folder / f"{self.owner}.lock"
        self.fd, self._held = hold(self._path), True

    def release(self) -> None:
        """This owner is gone: its file and its lock end."""
        if self._held:
            self._path.unlink(missing_ok=True)
            os.close(self.fd)
            self._held = False


def is_alive(folder: Path, owner: str) -> bool:
    """Whether the owner of that name still holds its lease."""
    return not is_free(folder / f"{owner}.lock")
