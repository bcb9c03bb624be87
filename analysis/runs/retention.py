"""How many runs are kept, and how much of the disk they may take; what was deleted waits here to be undone."""

import time
from dataclasses import dataclass
from pathlib import Path

from ..errors import BadSetting
from ..files import move, read_json, remove, sweep, touch, write_json
from .keys import check_id, is_id
from .run import Run
from .shelf import Shelf, room

FILE = "retention.json"
KEPT_RUNS, KEPT_BYTES = 500, 2_000_000_000  # beyond either the oldest runs go, pinned ones never
MOST_RUNS, MOST_BYTES = 100_000, 10**13
KEPT_DAYS = 7  # a deleted run can be brought back for so long


@dataclass(frozen=True)
class Usage:
    """What lies on the disk."""

    runs: int
    bytes: int
    pinned: int  # of the runs
    pinned_bytes: int
    deleted: int  # runs that can come back
    deleted_bytes: int
    texts: int
    text_bytes: int
    kept_runs: int  # so many of the runs computed here stay that are not pinned, and as many that came in bundles
    kept_bytes: int


def limits(root: Path) -> tuple[int, int]:
    """(runs, bytes) that are kept; the defaults while nobody chose others, or when what was chosen cannot be read."""
    chosen = read_json(root / FILE) or {}
    return chosen.get("runs", KEPT_RUNS), chosen.get("bytes", KEPT_BYTES)


def choose_limits(root: Path, runs: object, size: object) -> None:
    """Keep so many `runs` and `size` bytes from now on; BadSetting for what is no such number."""
    for value, most, what in ((runs, MOST_RUNS, "runs"), (size, MOST_BYTES, "bytes")):
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            raise BadSetting(f"{str(value)[:40]!r} is no number of {what} to keep: choose 1 to {most:,}.")
    with room(root):
        write_json(root / FILE, {"runs": runs, "bytes": size})


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
                # Its week begins; a run that was moved without it could go at once.
                touch(path)
                move(path, self._folder / path.name)
            except FileNotFoundError:
                return

    def give(self, run_id: str, shelf: Shelf) -> bool:
        """Move a run folder back to a shelf; False when it is not here, or damaged. A run that stands there stays."""
        if self._shelf.read(check_id(run_id)) is None:
            return False
        shelf.take(self._folder / run_id)
        return True

    def runs(self) -> list[Run]:
        """The deleted runs, the newest first."""
        deleted = self._deleted()
        runs = map(self._shelf.read, sorted(deleted, key=deleted.__getitem__, reverse=True))
        return [run for run in runs if run is not None]

    def empty(self, before: float | None = None) -> None:
        """Remove for good what was deleted `before` that time (seconds), or all."""
        for run_id, when in self._deleted().items():
            if before is None or when < before:
                remove(self._folder / run_id)

    def _deleted(self) -> dict[str, float]:
        """id -> when it was deleted (seconds)."""
        if not self._folder.is_dir():
            return {}
        return {path.name: path.stat().st_mtime for path in self._folder.iterdir() if is_id(path.name)}
