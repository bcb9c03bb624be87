"""The folder that holds the run folders: a run appears whole by one rename, and disappears by one."""

import errno
import logging
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from analysis.errors import AnalysisError
from analysis.runs.database import disk_full
from analysis.runs.folder import MANIFEST, read_run, write_run
from analysis.runs.keys import Asked, is_id
from analysis.runs.run import MARKS, Damaged, Report, Result, Run

KEPT_DAMAGED = 10  # damaged folders set aside for a look
KEPT_KNOWN = 200  # runs in memory
STALE = 3600  # seconds after which an unfinished draft belongs to nobody
_HIDDEN = (".tmp-*", ".old-*")  # drafts, and folders on their way out
log = logging.getLogger("focuscope.runs")


class Shelf:
    """Run folders below `folder`, named by their ids. With `readonly` nothing is ever moved or written.

    `on_damage(id, sentence)` is called after a damaged run was set aside as `.damaged-<id>-*`.
    """

    def __init__(self, folder: Path, readonly: bool = False) -> None:
        self.folder, self._readonly = folder, readonly
        self.on_damage: Report | None = None
        self._known: dict[str, tuple[tuple[Any, ...], Run | None]] = {}

    def read(self, run_id: str) -> Run | None:
        """The Run, or None when there is none here or it was damaged (and is now set aside)."""
        try:
            return read_run(self.folder / run_id, example=self._readonly, report=self._report)
        except FileNotFoundError:
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

    def place(self, asked: Asked, result: Result, protocol: dict[str, Any], seconds: float) -> None:
        """Writes a run and shows it under its id, unless a whole one stands there already."""
        with room(self.folder):
            draft = self._draft(asked.key, "tmp")
            try:
                draft.mkdir(parents=True)
                write_run(draft, asked, result, protocol, seconds)
                self._show(draft, asked.key)
            finally:
                shutil.rmtree(draft, ignore_errors=True)

    def copy_in(self, run: Run) -> Path:
        """Copies the folder of `run` here, replacing a run of the same id; returns the new folder."""
        with room(self.folder):
            draft = self._draft(run.id, "tmp")
            try:
                shutil.copytree(run.folder, draft, ignore=shutil.ignore_patterns(MARKS))
                self.remove(run.id)
                self._show(draft, run.id)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
        return self.folder / run.id

    def take(self, path: Path) -> None:
        """Move the whole run folder `path` of this disk here, unless a whole one of its id stands here already."""
        with room(self.folder):
            self._show(path, path.name)
            shutil.rmtree(path, ignore_errors=True)

    def remove(self, run_id: str) -> None:
        """Take a run folder away, whole at once; one that is not here is no error."""
        leaving = self._draft(run_id, "old")
        try:
            (self.folder / run_id).rename(leaving)
        except FileNotFoundError:
            return
        shutil.rmtree(leaving, ignore_errors=True)

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
            for path in [path for pattern in _HIDDEN for path in self.folder.glob(pattern)]:
                if abs(time.time() - path.stat().st_mtime) > STALE:
                    shutil.rmtree(path, ignore_errors=True)

    def _draft(self, run_id: str, kind: str) -> Path:
        return self.folder / f".{kind}-{run_id}-{secrets.token_hex(4)}"

    def _show(self, draft: Path, run_id: str) -> None:
        for _ in range(2):
            try:
                draft.rename(self.folder / run_id)
                return
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            if self.read(run_id) is not None:  # an equal request was faster; a damaged one is out of the way now
                return

    def _report(self, run_id: str, why: str) -> None:
        if not self._readonly:
            aside = self._draft(run_id, "damaged")
            try:
                (self.folder / run_id).rename(aside)
            except OSError:
                return  # another process was faster
            old = sorted(self.folder.glob(".damaged-*"), key=lambda path: path.stat().st_mtime)[:-KEPT_DAMAGED]
            for path in old:
                shutil.rmtree(path, ignore_errors=True)
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
