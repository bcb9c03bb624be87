"""What lies in a folder, entry by entry: read from it, and again whenever it changed, so that there is one truth."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from .keys import is_id

# Ns: file systems date changes in ticks of up to 10 ms, so a younger date may hide one more.
SETTLED = 50_000_000


class Dated(Protocol):
    """An entry."""

    @property
    def created(self) -> str:
        """When it was made (ISO 8601 with offset, so text of one machine sorts by time)."""


Entry = TypeVar("Entry", bound=Dated)
# Changes when an entry is written anew.
Stamp = tuple[int, ...]


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

    Each lies in a file or folder called by an id and `suffix`; `read(id)` makes the entry, or None for what is none.
    """

    def __init__(self, folder: Path, read: Callable[[str], Entry | None], suffix: str = "") -> None:
        self._folder, self._read, self._suffix = folder, read, suffix
        self._entries: dict[str, tuple[Stamp, Entry | None]] = {}
        # Of the folder when its entries were last compared with it; -1: it may hide a change.
        self._folder_time = -1
        self._lock = threading.RLock()

    def entries(self) -> list[Entry]:
        """All entries as they lie in the folder now, the oldest first."""
        with self._lock:
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

    def _compare(self) -> None:
        names = (name.removesuffix(self._suffix) for name in os.listdir(self._folder) if name.endswith(self._suffix))
        stamps = {name: stamp(f"{self._folder}/{name}{self._suffix}") for name in names if is_id(name)}
        settled = time.time_ns() - SETTLED
        self._entries = {name: pair for name, pair in self._entries.items() if name in stamps}
        arrived: list[tuple[str, Entry]] = []
        for name, now in stamps.items():
            written, former = self._entries.get(name, ((), None))
            if written == now:
                continue
            entry = self._read(name)
            if entry is None or former is not None and former.created == entry.created:
                # What was written just now may be written once more with the same date: it is read again.
                self._entries[name] = now if now[1] < settled else (), entry
            else:
                # Also what was made anew in the place of another.
                self._entries.pop(name, None)
                arrived.append((name, entry))
        for name, entry in sorted(arrived, key=lambda pair: (pair[1].created, stamps[pair[0]][1])):
            self._entries[name] = stamps[name] if stamps[name][1] < settled else (), entry
