"""The job table: what was asked, how far it is and how it ended, outside every process that may die."""

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from ..declaration.command import Command
from ..errors import BadSetting, Busy
from ..files import clear, exclusive, read_json, sweep, write_json, write_text
from ..limits import limits
from ..runs.catalogue import Catalogue
from ..runs.keys import check_id
from ..runs.run import now
from ..runs.shelf import room

KEPT = 500  # ended jobs
# States of a job that has not ended.
OPEN = ("queued", "running")


@dataclass(frozen=True)
class Job:
    """A job as its file holds it. `seq` orders jobs; `key` is the id of the run it will make, `run` that of the one it
    made; the app `owner` took it and has it in its queue; `state` is queued, running, done, failed, cancelled or
    interrupted; `cancel`: somebody wants it to stop; `error`: the sentence to show. Times in ISO 8601."""

    id: str
    seq: int
    key: str
    verb: str
    args: dict[str, Any]
    session: str
    owner: str
    state: str
    created: str
    cancel: bool = False
    run: str | None = None
    error: str | None = None
    started: str | None = None
    ended: str | None = None


@dataclass(frozen=True, kw_only=True)
class JobStatus(Job):
    """A job and how far it is."""

    fraction: float  # 0 to 1
    stage: str
    seconds_left: float | None  # None while unknown
    # 1 = next, 0 = not waiting.
    queue_position: int


class JobTable:
    """`root`/jobs/<id>.json for each job, written anew when its state changes, under one lock for all apps; and
    jobs/progress/<id>.json, which only the worker writes that has the job."""

    def __init__(self, root: Path) -> None:
        self._folder, self._progress = root / "jobs", root / "jobs" / "progress"
        with room(root):
            self._progress.mkdir(parents=True, exist_ok=True)
        sweep(self._folder)
        sweep(self._progress)
        self._catalogue = Catalogue(self._folder, self._read, ".json")

    def add(self, key: str, request: Command, session: str, owner: str) -> str:
        """Id of a new queued job; an equal one that still waits or runs is answered with its own id.

        Busy when this session, or the whole machine, has too many waiting.
        """
        with self._alone():
            jobs = self._jobs()
            pending = [job for job in jobs if job.state in OPEN]
            for job in pending:
                if job.key == key and not job.cancel:
                    return job.id
            of_session = sum(job.session == session for job in pending)
            for number, limit, whose in (
                (of_session, limits().jobs_each, "of yours"),
                (len(pending), limits().jobs_all, "in all"),
            ):
                if number >= limit:
                    raise Busy(
                        f"{number} jobs {whose} are waiting or running and {limit} is the limit: cancel one, or wait."
                    )
            seq = 1 + max((job.seq for job in jobs), default=0)
            job = Job(
                id=secrets.token_hex(6),
                seq=seq,
                key=key,
                verb=request.verb,
                args=request.spelled,
                session=session,
                owner=owner,
                state="queued",
                created=now(),
            )
            self._write(job)
            for old in jobs[:-KEPT]:
                if old.state not in OPEN:
                    clear(self._folder / f"{old.id}.json")
                    clear(self._progress / f"{old.id}.json")
        return job.id

    def claim(self, owner: str) -> JobStatus | None:
        """Marks the owner's oldest queued job as running and returns its status, or None."""
        with self._alone():
            job = next((job for job in self._jobs() if job.owner == owner and job.state == "queued"), None)
            if job is None:
                return None
            self._write(replace(job, state="running", started=now()))
        return self.status(job.id)

    def progress(
        self, job_id: str, fraction: float, stage: str, seconds_left: float | None, curve: dict[str, Any] | None = None
    ) -> None:
        """How far a running job is; `curve`: what it can draw already, column -> values; without it the last stays."""
        path = self._progress / f"{check_id(job_id, 'job')}.json"
        latest = curve if curve is not None else (read_json(path) or {}).get("curve")
        report = {"fraction": fraction, "stage": stage, "seconds_left": seconds_left, "curve": latest}
        with room(self._folder):
            write_text(path, json.dumps(report))

    def finish(self, job_id: str, state: str, run: str | None = None, error: str | None = None) -> None:
        """Ends a job once; a job that has ended stays as it is."""
        with self._alone():
            job = self._read(job_id)
            if job is not None and job.state in OPEN:
                self._end(job, state, error, run)
        if state == "done":
            clear(self._progress / f"{job_id}.json")

    def curve(self, job_id: str) -> dict[str, Any] | None:
        """What a job that is not done has shown so far, column -> values; None when that is nothing."""
        job = self._read(check_id(job_id, "job"))
        if job is None or job.state == "done":
            return None
        return (read_json(self._progress / f"{job_id}.json") or {}).get("curve")

    def ask_cancel(self, job_id: str) -> None:
        """A queued job is cancelled at once; a running one is marked, and its owner sees to it."""
        with self._alone():
            job = self._read(job_id)
            if job is not None and job.state == "queued":
                self._end(job, "cancelled", "The job was cancelled before it began.")
            elif job is not None and job.state == "running":
                self._write(replace(job, cancel=True))

    def cancel_asked(self, job_id: str) -> bool:
        """Whether somebody, in any app, wants this job cancelled."""
        job = self._read(job_id)
        return job is not None and job.cancel

    def interrupt(self, owner: str, why: str) -> None:
        """Every job of that owner which waits or runs is now interrupted."""
        with self._alone():
            for job in self._jobs():
                if job.owner == owner and job.state in OPEN:
                    self._end(job, "interrupted", why)

    def owners(self) -> list[str]:
        """Owners of jobs that wait or run."""
        return sorted({job.owner for job in self._jobs() if job.state in OPEN})

    def status(self, job_id: str) -> JobStatus:
        """JobStatus; BadSetting for an id that is malformed or unknown."""
        return self._status(self._known(job_id))

    def active(self, session: str | None = None) -> list[JobStatus]:
        """Jobs that wait or run, the oldest first."""
        return [self._status(job) for job in self._jobs() if job.state in OPEN and session in (None, job.session)]

    def recent(self, session: str | None = None, limit: int = 20) -> list[JobStatus]:
        """The newest jobs in any state."""
        jobs = [job for job in reversed(self._jobs()) if session in (None, job.session)]
        return [self._status(job) for job in jobs[:limit]]

    def _status(self, job: Job) -> JobStatus:
        report = read_json(self._progress / f"{job.id}.json") or {}
        place = 0
        if job.state == "queued":
            place = sum(
                other.owner == job.owner and other.state == "queued" and other.seq <= job.seq for other in self._jobs()
            )
        return JobStatus(
            **vars(job),
            fraction=1.0 if job.state == "done" else float(report.get("fraction", 0.0)),
            stage=str(report.get("stage", "")),
            seconds_left=report.get("seconds_left") if job.state == "running" else None,
            queue_position=place,
        )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """What is read and written in here happens together, for all apps on this folder."""
        with room(self._folder), exclusive(self._folder / ".lock"):
            yield

    def _jobs(self) -> list[Job]:
        return sorted(self._catalogue.entries(), key=lambda job: job.seq)

    def _known(self, job_id: str) -> Job:
        job = self._read(check_id(job_id, "job"))
        if job is None:
            raise BadSetting(f"The job {job_id} is not known here (any more): start it again.")
        return job

    def _end(self, job: Job, state: str, error: str | None, run: str | None = None) -> None:
        self._write(replace(job, state=state, run=run, error=error, ended=now(), cancel=False))

    def _write(self, job: Job) -> None:
        write_json(self._folder / f"{job.id}.json", asdict(job))

    def _read(self, job_id: str) -> Job | None:
        """The job in a file, also of an earlier program, which kept more in it; None for anything else."""
        row = read_json(self._folder / f"{job_id}.json") or {}
        try:
            job = Job(**{field.name: row[field.name] for field in fields(Job)})
            args = json.loads(job.args) if isinstance(job.args, str) else job.args
        except (KeyError, TypeError, ValueError):
            return None
        if job.id != job_id or not isinstance(job.seq, int):
            return None
        return replace(job, args=args, cancel=bool(job.cancel))
