"""What lies in a folder, entry by entry. The folder is the truth; its catalogue is read from it, and again whenever it
changed, so nothing has to be written in two places."""

import json
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from ..files import write_text

SETTLED = 50_000_000  # ns: file systems date changes in ticks of up to 10 ms, so a younger date may hide one more
UNSAVED = 50  # entries read before the file is written anew: a row costs 1 ms to read, the file 20 ms to write


class Dated(Protocol):
    """An entry: a dataclass that can be a line of JSON."""

    @property
    def created(self) -> str:
        """When it was made (ISO 8601 with offset, so text of one machine sorts by time)."""


Entry = TypeVar("Entry", bound=Dated)
Stamp = tuple[int, ...]  # changes when an entry is written anew


def stamp(*paths: Path | str) -> Stamp:
    """Inode, time and size of each file; zeros for one that is not there."""
    numbers: list[int] = []
    for path in paths:
        try:
            status = os.stat(path)
            numbers += status.st_ino, status.st_mtime_ns, status.st_size
        except OSError:
            numbers += 0, 0, 0
    return tuple(numbers)


class Catalogue(Generic[Entry]):
    """Entries of `folder` in the order in which they arrived, so that a changed clock does not matter.

    `stamps()` names what is there now; `read(name)` makes its entry, or None for what is none. `file` keeps the
    entries for the next process: without it, or where it is damaged or of another program, all are read again.
    """

    def __init__(
        self,
        kind: type[Entry],
        folder: Path,
        stamps: Callable[[], dict[str, Stamp]],
        read: Callable[[str], Entry | None],
        file: Path | None = None,
    ) -> None:
        self._kind, self._folder, self._stamps, self._read, self._file = kind, folder, stamps, read, file
        self._entries: dict[str, tuple[Stamp, Entry | None]] = {}
        self._loaded, self._unsaved = file is None, 0
        # Of the folder when its entries were last compared with it; -1: it may hide a change.
        self._folder_time = -1
        self._lock = threading.RLock()

    def entries(self) -> list[Entry]:
        """All entries as they lie in the folder now, the oldest first."""
        with self._lock:
            if not self._loaded:
                self._load()
            try:
                changed = os.stat(self._folder).st_mtime_ns
            except FileNotFoundError:
                self._entries.clear()
                return []
            if changed != self._folder_time:
                compared = time.time_ns()
                self._compare()
                self._folder_time = changed if changed + SETTLED < compared else -1
            return [entry for _, entry in self._entries.values() if entry is not None]

    def save(self) -> None:
        """Keep the entries for the next process. A disk that takes no more costs it some reading, nothing else."""
        with self._lock:
            if self._file is None or not self._unsaved:
                return
            lines = [[name, mark, asdict(entry)] for name, (mark, entry) in self._entries.items() if entry is not None]  # type: ignore[call-overload]
            with suppress(OSError):
                write_text(self._file, json.dumps(lines))
                self._unsaved = 0

    def _compare(self) -> None:
        stamps = self._stamps()
        settled = time.time_ns() - SETTLED
        self._entries = {name: pair for name, pair in self._entries.items() if name in stamps}
        arrived: list[tuple[str, Entry]] = []
        for name, now in stamps.items():
            written, former = self._entries.get(name, ((), None))
            if written == now:
                continue
            entry = self._read(name)
            self._unsaved += entry != former
            if entry is None or former is not None and former.created == entry.created:
                # What was written just now may be written once more with the same date: it is read again.
                self._entries[name] = now if now[1] < settled else (), entry
            else:  # also what was made anew in the place of another
                self._entries.pop(name, None)
                arrived.append((name, entry))
        for name, entry in sorted(arrived, key=lambda pair: (pair[1].created, stamps[pair[0]][1])):
            self._entries[name] = stamps[name] if stamps[name][1] < settled else (), entry
        if self._unsaved >= UNSAVED:
            self.save()

    def _load(self) -> None:
        self._loaded = True
        try:
            lines: list[tuple[str, list[int], dict[str, Any]]] = json.loads((self._file or Path()).read_bytes())
            self._entries = {name: (tuple(mark), self._kind(**entry)) for name, mark, entry in lines}
        except (OSError, ValueError, TypeError, RecursionError):
            self._entries = {}
