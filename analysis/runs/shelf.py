"""The folder that holds the run folders: a run appears whole by one rename, and disappears by one."""

import errno
import logging
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from analysis.answer import Answer
from analysis.errors import AnalysisError
from analysis.files import PARTIAL, clear, draft, exchange, move, remove, sweep
from analysis.runs.database import disk_full
from analysis.runs.folder import MANIFEST, read_run, write_run
from analysis.runs.keys import Asked, is_id
from analysis.runs.run import MARKS, Damaged, Newer, Report, Result, Run, may_be_pinned

KEPT_DAMAGED = 10  # damaged folders set aside for a look, beside those that were pinned
KEPT_KNOWN = 200  # runs in memory
log = logging.getLogger("focuscope.runs")


class Shelf:
    """Run folders below `folder`, named by their ids. With `readonly` nothing is ever moved or written.

    `on_damage(id, sentence)` is called after a damaged run was set aside as `.damaged-<id>-*`.
    """

    def __init__(self, folder: Path, readonly: bool = False) -> None:
        self.folder, self._readonly = folder, readonly
        self.on_damage: Report | None = None
        self.newer: dict[str, str] = {}  # id -> the sentence, of runs that a newer program wrote
        self._known: dict[str, tuple[tuple[Any, ...], Run | None]] = {}

    def read(self, run_id: str) -> Run | None:
        """The Run, or None when there is none here, it was damaged (and is now set aside) or a newer program's."""
        try:
            return read_run(self.folder / run_id, example=self._readonly, report=self._report)
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

    def known(self, run_id: str) -> Run | None:
        """The Run as it was read last, read again when its folder has changed: for lists, which ask for many."""
        folder = self.folder / run_id
        try:
            stamp = tuple((at.st_ino, at.st_mtime_ns, at.st_size) for at in (folder.stat(), (folder / MANIFEST).stat()))
        except OSError:
            return self.read(run_id)
        held, run = self._known.get(run_id, (None, None))
        if held != stamp:
            run = self.read(run_id)
            if len(self._known) >= KEPT_KNOWN:
                self._known.clear()
            self._known[run_id] = stamp, run
        return run

    def place(self, asked: Asked, result: Result | Answer, protocol: dict[str, Any], seconds: float) -> None:
        """Writes a run and shows it under its id, unless a whole one stands there already."""
        with room(self.folder), draft(self.folder, asked.key) as place:
            write_run(place, asked, result, protocol, seconds)
            self._show(place, asked.key)

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
        remove(self.folder / run_id)

    def ids(self) -> list[str]:
        """Every run folder's id, the oldest folder first."""
        if not self.folder.is_dir():
            return []
        found = [path for path in self.folder.iterdir() if is_id(path.name)]
        return [path.name for path in sorted(found, key=lambda path: path.stat().st_mtime)]

    def sweep(self) -> None:
        """Removes what a killed process left unfinished."""
        with room(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            sweep(self.folder, *PARTIAL, "*/.tmp-*")

    def _show(self, place: Path, run_id: str) -> None:
        for _ in range(2):
            try:
                move(place, self.folder / run_id)
                return
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            if self.read(run_id) is not None:  # an equal request was faster; a damaged one is out of the way now
                return

    def _report(self, run_id: str, why: str) -> None:
        if not self._readonly:
            aside = self.folder / f".damaged-{run_id}-{secrets.token_hex(4)}"
            try:
                move(self.folder / run_id, aside)
            except OSError:
                return  # another process was faster
            there = [path for path in self.folder.glob(".damaged-*") if not may_be_pinned(path)]
            for path in sorted(there, key=lambda path: path.stat().st_mtime)[:-KEPT_DAMAGED]:
                clear(path)
        sentence = f"The stored run {run_id} was damaged ({why}) and is not used; the same request computes it anew."
        log.warning(sentence)
        if self.on_damage is not None:
            self.on_damage(run_id, sentence)


@contextmanager
def room(folder: Path) -> Iterator[None]:
    """Turns a full disk or an unusable folder into one sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise disk_full(folder) from error
        raise AnalysisError(
            f"The folder {folder} cannot be used ({error.strerror or error}): "
            "make it writable, or name another one with FOCUSCOPE_STATE."
        ) from error
    except Exception as error:
        if "No space left" in str(error):  # safetensors has its own kind of error for it
            raise disk_full(folder) from error
        raise
