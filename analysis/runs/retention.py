"""How many runs are kept, and how much of the disk they may take; what was deleted waits here to be undone."""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.errors import BadSetting
from analysis.files import move, remove, sweep, write_json
from analysis.runs import index
from analysis.runs.keys import check_id
from analysis.runs.run import Run
from analysis.runs.shelf import Shelf, room

FILE = "retention.json"
MOST_RUNS, MOST_BYTES = 100_000, 10**13
KEPT_DAYS = 7  # a deleted run can be brought back for so long


@dataclass(frozen=True)
class Usage:
    """What lies on the disk: numbers of runs and their bytes, of which pinned, and deleted ones that can come back;
    `texts` and their bytes; of the runs computed here at most `kept_runs` and `kept_bytes` bytes stay that are not
    pinned, and as many of those that came in bundles."""

    runs: int
    bytes: int
    pinned: int
    pinned_bytes: int
    deleted: int
    deleted_bytes: int
    texts: int
    text_bytes: int
    kept_runs: int
    kept_bytes: int


def limits(root: Path) -> tuple[int, int]:
    """(runs, bytes) that are kept; the defaults while nobody chose others, or when what was chosen cannot be read."""
    try:
        chosen = json.loads((root / FILE).read_text(encoding="utf-8"))
        return _checked(chosen["runs"], chosen["bytes"])
    except (OSError, ValueError, KeyError, TypeError, BadSetting):
        return index.KEPT_RUNS, index.KEPT_BYTES


def choose_limits(root: Path, runs: object, size: object) -> None:
    """Keep so many `runs` and `size` bytes from now on; BadSetting for what is no such number."""
    runs, size = _checked(runs, size)
    with room(root):
        write_json(root / FILE, {"runs": runs, "bytes": size})


def _checked(runs: Any, size: Any) -> tuple[int, int]:
    for value, most, what in ((runs, MOST_RUNS, "runs"), (size, MOST_BYTES, "bytes")):
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            raise BadSetting(f"{str(value)[:40]!r} is no number of {what} to keep: choose 1 to {most:,}.")
    return runs, size


class Trash:
    """Run folders that were deleted, for KEPT_DAYS days. A run moves in and out by one rename."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._shelf = folder, Shelf(folder)
        sweep(folder)

    def take(self, path: Path) -> None:
        """Move a run folder here; one of the same id that was here goes for good. No error when it is gone."""
        self.empty(time.time() - KEPT_DAYS * 86400)
        if not path.is_dir():
            return
        with room(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._shelf.remove(path.name)
            try:
                os.utime(path)  # its week begins; a run that was moved without it could go at once
                move(path, self._folder / path.name)
            except FileNotFoundError:
                return

    def give(self, run_id: str, shelf: Shelf) -> bool:
        """Move a run folder back to a shelf; False when it is not here, or damaged. A run that stands there stays."""
        if self._shelf.read(check_id(run_id)) is None:
            return False
        with room(self._folder):
            shelf.take(self._folder / run_id)
        return True

    def runs(self) -> list[Run]:
        """The deleted runs, the newest first."""
        return [run for run in map(self._shelf.read, reversed(self._shelf.ids())) if run is not None]

    def empty(self, before: float | None = None) -> None:
        """Remove for good what was deleted `before` that time (seconds), or all."""
        for run_id in self._shelf.ids():
            path = self._folder / run_id
            if before is None or path.stat().st_mtime < before:
                remove(path)
