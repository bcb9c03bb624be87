"""Who still lives: an owner of jobs holds a lock on a file, which the system frees however the owner dies.

No heartbeat to miss, no clock to trust, no process number that another process inherits.
"""

import fcntl
import os
import secrets


class Lease:
    """Held from creation to `release()` or death. `owner` is its name in the job table. The worker inherits `fd`, so
    jobs count as alive until app and worker are both gone and a resumed job never meets its former self."""

    def __init__(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        sweep(folder)
        self.owner = secrets.token_hex(6)
        self._path = folder / f"{self.owner}.lock"
        while True:
            self.fd = os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600)
            fcntl.flock(self.fd, fcntl.LOCK_EX)
            if _same_file(self.fd, self._path):
                return
            os.close(self.fd)  # swept between opening and locking

    def release(self):
        """This owner is gone: its file and its lock end."""
        if self.fd is not None:
            self._path.unlink(missing_ok=True)
            os.close(self.fd)
            self.fd = None


def is_alive(folder, owner):
    """Whether the owner of that name still holds its lease."""
    return not _free(folder / f"{owner}.lock")


def sweep(folder):
    """Removes the leases of the dead."""
    for path in folder.glob("*.lock"):
        _free(path, remove=True)


def _free(path, remove=False):
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


def _same_file(fd, path):
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False
