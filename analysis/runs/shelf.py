"""The folder that holds the run folders: a run appears whole by one rename, and disappears by one."""

import errno
import logging
import secrets
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..answer import Answer
from ..errors import AnalysisError
from ..files import PARTIAL, clear, draft, exchange, move, remove, sweep, touch, write_text
from .catalogue import Catalogue, Stamp, stamp
from .folder import MANIFEST, read_run, write_run
from .keys import Asked, is_id
from .run import MARKS, Damaged, Marks, Newer, Result, Run, write_marks
from .search import Row, row_of

# In a damaged folder that was set aside: the sentence about it.
WHY = "damage.txt"
# Runs in memory, and bytes of their manifests, which take ten times that there.
MOST_OPEN, MOST_READ = 200, 16_000_000
# Of the manifest, in what `_stamp` gives.
_SIZE = 5
log = logging.getLogger("focuscope.runs")


class Shelf:
    """Run folders below `folder`, named by their ids. With `readonly` nothing is ever moved or written. A manifest is
    read once and again only when the run's folder has changed. A damaged run is set aside as `.damaged-<id>-*`."""

    def __init__(self, folder: Path, readonly: bool = False) -> None:
        self.folder, self._readonly = folder, readonly
        # Id -> the sentence, of runs that another version wrote.
        self.newer: dict[str, str] = {}
        self._open: dict[str, tuple[Stamp, Run]] = {}
        self._lock = threading.Lock()
        # A run's files are replaced by renaming, which dates its folder: one look at each run instead of three.
        self._catalogue = Catalogue(folder, self._row)

    def rows(self) -> list[Row]:
        """What lists need to know of each run, the newest first."""
        return self._catalogue.entries()[::-1]

    def read(self, run_id: str) -> Run | None:
        """The Run, shared between all who ask for it, or None when there is none here, it was damaged (and is now set
        aside) or another version's."""
        folder = self.folder / run_id
        written = stamp(folder, folder / MANIFEST, folder / MARKS)
        if not any(written):
            return None
        before, run = self._open.get(run_id, (None, None))
        if run is not None and before == written and run.has_its_files:
            return run
        try:
            run = read_run(folder, example=self._readonly, report=self._report)
        except FileNotFoundError:
            return None
        except Newer as error:
            self.newer[run_id] = str(error)
            return None
        except Damaged as error:
            self._report(run_id, str(error))
            return None
        except OSError as error:
            raise AnalysisError(f"The stored run {run_id} cannot be read ({error.strerror}): try again.") from error
        self._remember(run, written)
        return run

    def dates(self) -> dict[str, float]:
        """id -> seconds since 1970 at which its folder was dated last."""
        if not self.folder.is_dir():
            return {}
        return {path.name: path.stat().st_mtime for path in self.folder.iterdir() if is_id(path.name)}

    def damaged(self) -> list[str]:
        """A sentence for each run that was set aside, the newest first."""
        asides = sorted(self.folder.glob(f".damaged-*/{WHY}"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        return [path.read_text(encoding="utf-8") for path in asides]

    def place(
        self, asked: Asked, result: Result | Answer, protocol: dict[str, Any], seconds: float, marks: Marks
    ) -> None:
        """Writes a run and shows it under its id, unless a whole one stands there already."""
        with room(self.folder), draft(self.folder, asked.key) as place:
            write_run(place, asked, result, protocol, seconds)
            if marks != Marks():
                write_marks(place, marks)
            self._show(place, asked.key)

    def mark(self, run_id: str, marks: Marks) -> None:
        """Note `marks` beside a run, and date this folder, so that every process looks at its rows again."""
        with room(self.folder):
            write_marks(self.folder / run_id, marks)
            touch(self.folder)

    def copy_in(self, run: Run) -> Path:
        """Copies the folder of `run` here, replacing a run of the same id; returns the new folder."""
        target = self.folder / run.id
        with room(self.folder), draft(self.folder, run.id) as place:
            shutil.copytree(run.folder, place, ignore=shutil.ignore_patterns(MARKS), dirs_exist_ok=True)
            (exchange if target.is_dir() else move)(place, target)
        return target

    def take(self, path: Path) -> None:
        """Move the whole run folder `path` of this disk here, unless a whole one of its id stands here already."""
        with room(self.folder):
            self._show(path, path.name)
            if path.exists():
                clear(path)

    def remove(self, run_id: str) -> None:
        """Take a run folder away, whole at once; one that is not here is no error."""
        with room(self.folder):
            remove(self.folder / run_id)

    def sweep(self) -> None:
        """Removes what a killed process left unfinished."""
        with room(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            sweep(self.folder, *PARTIAL, "*/.tmp-*")

    def _row(self, run_id: str) -> Row | None:
        run = self.read(run_id)
        return None if run is None else row_of(run)

    def _remember(self, run: Run, written: Stamp) -> None:
        with self._lock:
            self._open.pop(run.id, None)
            self._open[run.id] = written, run
            while len(self._open) > 1 and (
                len(self._open) > MOST_OPEN or sum(mark[_SIZE] for mark, _ in self._open.values()) > MOST_READ
            ):
                del self._open[next(iter(self._open))]

    def _show(self, place: Path, run_id: str) -> None:
        for _ in range(2):
            try:
                move(place, self.folder / run_id)
                return
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            # An equal request was faster; a damaged one is out of the way now.
            if self.read(run_id) is not None:
                return

    def _report(self, run_id: str, why: str) -> None:
        sentence = f"The stored run {run_id} was damaged ({why}) and is not used; the same request computes it anew."
        if not self._readonly:
            aside = self.folder / f".damaged-{run_id}-{secrets.token_hex(4)}"
            try:
                move(self.folder / run_id, aside)
                write_text(aside / WHY, " ".join(sentence.split()))
            # Another process was faster, or the disk is full.
            except OSError:
                return
        log.warning(sentence)


@contextmanager
def room(folder: Path) -> Iterator[None]:
    """Turns a full disk or an unusable folder into one sentence."""
    try:
        yield
    except Exception as error:
        # Safetensors has its own kind of error for a full disk.
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(error):
            raise AnalysisError(
                "The disk of the state folder is full, so nothing was stored: delete some runs or free space, then "
                "run it again."
            ) from error
        if not isinstance(error, OSError):
            raise
        raise AnalysisError(
            f"The folder {folder} cannot be used ({error.strerror or error}): "
            "make it writable, or name another one with FOCUSCOPE_STATE."
        ) from error
