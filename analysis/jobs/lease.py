"""Who still lives: an owner of jobs holds a lock on a file, which the system frees however the owner dies.

No heartbeat to miss, no clock to trust, no process number that another process inherits.
"""

import fcntl
import os
import secrets
from pathlib import Path


class Lease:
    """Held from creation to `release()` or death. `owner` is its name in the job table. The worker inherits `fd`, so
    jobs count as alive until app and worker are both gone and a resumed job never meets its former self."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        sweep(folder)
        self.owner = secrets.token_hex(6)
        self._path = folder / f"{self.owner}.lock"
        while True:
            fd = os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600)
            fcntl.flock(fd, fcntl.LOCK_EX)
            if _same_file(fd, self._path):
                self.fd, self._held = fd, True
                return
            os.close(fd)  # swept between opening and locking

    def release(self) -> None:
        """This owner is gone: its file and its lock end."""
        if self._held:
            self._path.unlink(missing_ok=True)
            os.close(self.fd)
            self._held = False


def is_alive(folder: Path, owner: str) -> bool:
    """Whether the owner of that name still holds its lease."""
    return not _free(folder / f"{owner}.lock")


def sweep(folder: Path) -> None:
    """Removes the leases of the dead."""
    for path in folder.glob("*.lock"):
        _free(path, remove=True)


def _free(path: Path, remove: bool = False) -> bool:
    try:
        fd = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two who ask do not take each other for the owner
        if remove and _same_file(fd, path):
            path.unlink(missing_ok=True)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(fd)


def _same_file(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False
