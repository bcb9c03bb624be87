"""One SQLite file shared by the app, its threads and its worker; a damaged file is set aside, never a dead end."""

import logging
import os
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from analysis.errors import AnalysisError, Busy
from analysis.files import change, move

PATIENCE = 10.0  # seconds to wait for another process that writes
Hook = Callable[[sqlite3.Connection], object]
Values = Sequence[Any]
Found = TypeVar("Found")
log = logging.getLogger("focuscope.runs")


class Database:
    """A single connection behind a lock: safe from any thread, and no connection is opened per call.

    `prepare(hook)` runs `hook(connection)` now and again whenever the file had to be made anew, so each room creates
    (and refills) its own tables. Every sqlite error leaves here as a sentence.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._hooks: list[Hook] = []
        self._connection: sqlite3.Connection | None = None
        self.said: list[str] = []  # what happened to the file, for whoever keeps sentences
        with self._translated():
            self._open()

    def prepare(self, hook: Hook) -> None:
        """Call `hook(connection)` now and whenever the file had to be made anew: it creates tables."""
        self._hooks.append(hook)
        with self._lock, self._translated():
            self._mended(lambda: self._run(hook))

    def read(self, sql: str, values: Values = ()) -> list[sqlite3.Row]:
        """All rows (sqlite3.Row) of one query."""
        return self._twice(lambda connection: connection.execute(sql, values).fetchall())

    def write(self, sql: str, values: Values = ()) -> int:
        """Runs one statement in its own transaction; returns the number of rows it changed."""
        change()
        return self._twice(lambda connection: connection.execute(sql, values).rowcount)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Several statements that happen together or not at all; holds off other processes meanwhile."""
        with self._lock, self._translated(), _together(self._opened()) as connection:
            yield connection

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            raise AnalysisError("The run store was closed: open the page again.")
        if not self._is_there():  # set aside by another process, or removed: what is written to it now nobody finds
            self._connection.close()
            self._mended(lambda: (self._connect(), *map(self._run, self._hooks)))
        return self._connection

    def _is_there(self) -> bool:
        try:
            return os.stat(self.path).st_ino == self._inode
        except FileNotFoundError:
            return False

    def _run(self, hook: Hook) -> None:
        assert self._connection is not None
        with _together(self._connection) as connection:
            hook(connection)

    def _mended(self, action: Callable[[], object]) -> None:
        """Run `action`; when the file turns out damaged or another program's, it is made anew by all hooks."""
        try:
            action()
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            self._make_anew(error)

    def _make_anew(self, error: Exception) -> None:
        """Set the file aside, unless another process has done so already, and fill a new one."""
        assert self._connection is not None
        self._connection.close()
        if self._is_there():
            self._set_aside(error)
        self._connect()
        for hook in self._hooks:
            self._run(hook)

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            if self._connect().execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                raise sqlite3.DatabaseError("quick_check failed")
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            self._set_aside(error)
            self._connect()

    def _connect(self) -> sqlite3.Connection:
        self._connection = sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
        self._connection.row_factory = sqlite3.Row
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=NORMAL")
        self._inode = os.stat(self.path).st_ino
        return self._connection

    def _twice(self, action: Callable[[sqlite3.Connection], Found]) -> Found:
        """Runs `action`; when the file turns out damaged it is made anew (from the run folders) and tried once more."""
        with self._lock, self._translated():
            connection = self._opened()
            try:
                return action(connection)
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
                self._make_anew(error)
                return action(self._opened())

    def _set_aside(self, error: Exception) -> None:
        if self._connection is not None:
            self._connection.close()
        mark = f"damaged-{secrets.token_hex(3)}"
        for suffix in ("", "-wal", "-shm"):
            source = self.path.with_name(self.path.name + suffix)
            if source.exists():
                move(source, source.with_name(f"{source.name}.{mark}"))
        what = "held tables of another program" if _is_foreign(error) else "was damaged"
        self.said.append(
            f"The index {self.path.name} {what} ({error}); it was set aside as {self.path.name}.{mark} and made anew "
            "from the folders of runs, texts and jobs."
        )
        log.warning(self.said[-1])

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            said = str(error)
            if "locked" in said or "busy" in said:
                raise Busy(
                    f"The run store was locked by another program for {PATIENCE:.0f} s: try again, "
                    "and close a second Focuscope on the same state folder if this repeats."
                ) from error
            if "full" in said:
                raise disk_full(self.path.parent) from error
            raise AnalysisError(
                f"The run store could not be used ({said}): check that {self.path.name} in the state folder is a file "
                "this user may write; runs are kept in their own folders and are not lost."
            ) from error
        except OSError as error:
            raise AnalysisError(
                f"The state folder {self.path.parent} cannot be used ({error.strerror}): "
                "name another one with FOCUSCOPE_STATE."
            ) from error


@contextmanager
def _together(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    change()
    connection.execute("COMMIT")


def now() -> str:
    """The time, local with its offset, in ISO 8601."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


def disk_full(folder: Path) -> AnalysisError:
    """The sentence for a disk without room, as an AnalysisError to raise."""
    try:
        stat = os.statvfs(folder)
        free = f"{stat.f_bavail * stat.f_frsize / 1e6:,.0f} MB are free"
    except OSError:
        free = "no room is left"
    return AnalysisError(
        f"The disk of the state folder is full ({free}), so nothing was stored: "
        "delete some runs or free space, then run it again."
    )


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    if isinstance(error, (sqlite3.OperationalError, sqlite3.IntegrityError, sqlite3.ProgrammingError)):
        return "malformed" in str(error) or _is_foreign(error)
    return True


def _is_foreign(error: Exception) -> bool:
    """Whether tables are not those that this program made."""
    return any(words in str(error) for words in ("no such table", "no such column", "has no column"))
