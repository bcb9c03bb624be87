"""The queue's thread: takes this app's jobs one after the other to the worker and writes down how each ended."""

import logging
import threading
import time

from ..commands import named
from ..errors import AnalysisError, Cancelled
from ..limits import limits
from ..runs import RunStore
from .keeper import GRACE, Keeper
from .process import Call, Connection, WorkerLost
from .table import JobStatus, JobTable
from .wire import Message

# How a job ended: its state, the id of its run, a sentence.
End = tuple[str, str | None, str | None]
# Seconds between two looks whether a running job shall be cancelled.
LOOK = 0.25
log = logging.getLogger("focuscope.jobs")


class Runner(threading.Thread):
    """Runs until `stop()`. A cancelled job is asked to leave; after GRACE seconds its worker is killed."""

    def __init__(self, table: JobTable, store: RunStore, keeper: Keeper, owner: str) -> None:
        super().__init__(name="job-queue", daemon=True)
        self._table, self._store, self._keeper, self._owner = table, store, keeper, owner
        self._wake = threading.Event()
        self._stopping = False
        # Id of the job that has taken too long.
        self._overdue: str | None = None

    def wake(self) -> None:
        """A job was queued."""
        self._wake.set()

    def stop(self) -> None:
        """End the thread after the job it watches now."""
        self._stopping = True
        self._wake.set()

    def run(self) -> None:
        """Claim jobs one after the other and see each to its end."""
        while not self._stopping:
            try:
                job = self._table.claim(self._owner)
                if job is None:
                    self._wake.wait()
                    self._wake.clear()
                    continue
                self._finish(job, *self._run(job))
            except Exception:
                log.exception("The job queue met an error; it goes on.")
                time.sleep(1)

    def _finish(self, job: JobStatus, state: str, run: str | None, error: str | None) -> None:
        """Insists: a job that ended must not look as if it ran, so a locked or full disk is waited for."""
        while True:
            try:
                return self._table.finish(job.id, state, run, error)
            except AnalysisError:
                if self._stopping:
                    raise
                log.exception("The end of job %s could not be written yet.", job.id)
                time.sleep(1)

    def _run(self, job: JobStatus) -> End:
        """(state, run id, sentence) of one job."""
        try:
            stored = self._store.find(named(job.verb, job.args))
            if stored is not None:
                return "done", stored.id, None
            answer = self._ask(job)
            return "done", answer["run"], None
        except (Cancelled, WorkerLost) as error:
            return self._left(job, error)
        except AnalysisError as error:
            return "failed", None, str(error)
        except Exception as error:
            log.exception("The job %s could not be run.", job.id)
            return "failed", None, f"The job could not be run ({type(error).__name__}: {error}): start it again."

    def _ask(self, job: JobStatus) -> Message:
        """The worker's answer. A worker that died before it began the job is replaced once, and one that somebody gave
        up whenever that happens."""
        last = False
        while True:
            call, process = Call("job", job.verb, {**job.args}), self._keeper.live()
            # The worker writes progress under this id.
            call.id = job.id
            process.send(call)
            self._watch(job, call, process)
            try:
                return call.answer()
            except WorkerLost as lost:
                if self._stopping or self._table.cancel_asked(job.id):
                    raise
                if not process.given_up and (lost.began or last):
                    raise
                last = not process.given_up

    def _watch(self, job: JobStatus, call: Call, process: Connection) -> None:
        cancelled_at, limit = None, limits().job_seconds
        while not call.wait(LOOK):
            if limit is not None and call.begun is not None and time.monotonic() - call.begun > limit:
                self._overdue = job.id
            if cancelled_at is None and (self._overdue == job.id or self._table.cancel_asked(job.id)):
                process.cancel(call)
                cancelled_at = time.monotonic()
            elif cancelled_at is not None and time.monotonic() - cancelled_at > GRACE:
                process.kill(blame=call)
                call.wait(GRACE)

    def _left(self, job: JobStatus, error: Cancelled | WorkerLost) -> End:
        if self._overdue == job.id:
            limit = limits().job_seconds
            return "failed", None, f"The job took more than {limit:.0f} s, the limit here: choose a smaller scope."
        if isinstance(error, WorkerLost) and self._table.cancel_asked(job.id):
            reason = (
                "The job was cancelled and did not stop by itself, so its worker was replaced: resumed, it goes on "
                "from its last checkpoint where it has one."
            )
            return "cancelled", None, reason
        if self._stopping:
            return "interrupted", None, "Focuscope was closed while this job ran: resume it to go on."
        if isinstance(error, Cancelled):
            return "cancelled", None, str(error)
        if not error.began:
            return "failed", None, str(self._keeper.sentence(job.verb, error))
        reason = (
            f"The worker process stopped while it ran this job ({error.reason}): resume it, and it goes on from its "
            f"last checkpoint where it has one; the log is at {self._keeper.log_path}."
        )
        return "interrupted", None, reason
