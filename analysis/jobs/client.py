"""The app's side of all computing: quick requests with a deadline, long jobs with progress, one warm worker."""

import atexit
import contextlib
import hashlib
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..commands import named
from ..declaration.command import Command
from ..errors import AnalysisError, BadSetting
from ..files import read_json, write_json
from ..limits import limits
from ..runs import Run, RunStore
from ..runs.brought import upload
from ..runs.keys import asked_now, look_again
from .keeper import HUNG, Keeper, Tell
from .lease import Lease, is_alive
from .process import Call, WorkerProcess
from .runner import Runner
from .table import JobStatus, JobTable

STUDIES = "analysis.studies:STUDIES"
ROOT = Path(__file__).resolve().parents[1]
# The app draws the controls of methods before a worker has started, and never imports torch, which methods do: their
# hooks, and what these stand on, would all have to import it late. So what they say of themselves is kept in a file.
PLACE = ROOT / "methods" / "described.json"


class Jobs:
    """Asks a child process (`python -m analysis.jobs.worker`) for work and never computes anything itself.

    Safe from any thread: one object serves all sessions of an app. Several apps may share one store; each runs its own
    jobs and all see all of them. `studies` names the dict verb -> function the worker offers, as module:attribute.
    `workers`: how many of them there are; each holds models of its own and takes the next job that waits.
    """

    def __init__(self, store: RunStore, studies: str = STUDIES, workers: int = 1) -> None:
        self._store = store
        self._studies = studies
        self._owners = store.root / "owners"
        self._table = JobTable(store.root)
        self._lease = Lease(self._owners)
        self._settle()
        self._keepers = [self._make_keeper() for _ in range(workers)]
        self._keeper = self._keepers[0]
        self._runners = [Runner(self._table, store, keeper, self._lease.owner) for keeper in self._keepers]
        for runner in self._runners:
            runner.start()
        self._described: dict[str, Any] | None = None
        self._waking: threading.Timer | None = None
        self._closed = False
        atexit.register(self.close)

    def request(self, request: Command, timeout: float = 60) -> Run:
        """The Run that answers: from the store at once, else computed by the worker, also while a long job runs (at its
        progress borders). Raises the study's own AnalysisError; Busy after `timeout` seconds; `run.cached` says whether
        it was stored before."""
        return self._store.find(request) or self.compute(request, timeout)

    def compute(self, request: Command, timeout: float = 60, tell: Tell | None = None) -> Run:
        """`request` for who has looked into the store already. `tell(done, stage, seconds left, columns that can be
        drawn already or None)` is called meanwhile in this thread; when it raises, the request is cancelled."""
        limits().check(request)
        limit = limits().job_seconds
        idlest = min(self._keepers, key=lambda keeper: keeper.load)
        patience = timeout if limit is None else min(timeout, limit)
        answer = idlest.ask(request.verb, request.spelled, patience, tell)
        look_again()
        return replace(self._store.open(answer["run"]), cached=answer.get("cached", False))

    def read(self, data: bytes, name: str, timeout: float = 60) -> str:
        """Stores the text of an uploaded document, which the worker reads; returns its hash. Errors: BadText in one
        sentence, Busy after `timeout` seconds."""
        with upload(self._store.root, data) as place:
            answer = self._keeper.ask("read", {"upload": place, "name": str(name)[:200]}, timeout)
        return str(answer["value"]["text"])

    def describe(self, timeout: float = 60) -> dict[str, Any]:
        """The methods as plain data, {"methods": {...}}. The worker is asked only where their files were changed since
        `python -m analysis commands` kept its answer."""
        if self._described is None:
            description = kept() if self._studies == STUDIES else None
            self._described = description or self._keeper.ask("describe", {}, timeout)["value"]
        return self._described

    def submit(self, request: Command, session: str = "") -> str:
        """Puts a long job into the queue and returns its id (12 hex). An equal job that waits or runs already is
        answered with its id; a stored result makes it done at once. Busy when too many wait."""
        limits().check(request)
        self._settle()
        stored = self._store.find(request)
        job_id = self._table.add(asked_now(request).key, request, str(session)[:64], self._lease.owner)
        if stored is not None:
            self._table.finish(job_id, "done", run=stored.id)
        for runner in self._runners:
            runner.wake()
        return job_id

    def watch(self, job_id: str) -> JobStatus:
        """JobStatus of a job by its id, from any session, app or time."""
        status = self._table.status(job_id)
        if status.state in ("queued", "running"):
            self._settle()
            status = self._table.status(job_id)
        return status

    def curve(self, job_id: str) -> dict[str, Any] | None:
        """What a job that runs, or ended before it was done, can draw already: column -> values, or None."""
        return self._table.curve(job_id)

    def active(self, session: str | None = None) -> list[JobStatus]:
        """Jobs that wait or run, of one session or of all, the oldest first."""
        self._settle()
        return self._table.active(session)

    def recent(self, session: str | None = None, limit: int = 20) -> list[JobStatus]:
        """The newest jobs in any state, of one session or of all."""
        self._settle()
        return self._table.recent(session, limit)

    def cancel(self, job_id: str) -> None:
        """Cancels a job that waits at once, a running one at its next progress border or after 5 s with its worker."""
        self._table.status(job_id)
        self._table.ask_cancel(job_id)

    def resume(self, job_id: str) -> str:
        """Submits an interrupted, failed or cancelled job again with the same arguments; returns the new id. A study
        with checkpoints goes on from its last one."""
        job = self.watch(job_id)
        if job.state not in ("interrupted", "failed", "cancelled"):
            raise BadSetting(f"The job {job_id} is {job.state}: only an interrupted, failed or cancelled one resumes.")
        return self.submit(named(job.verb, job.args), job.session)

    def warm(self, model: str = "demo", after: float = 0.0) -> None:
        """Starts the worker, asks what it offers and lets it load the model, in the background; `after` so many
        seconds, unless somebody asks it before."""
        limits().check_model(model)
        if after:
            self._waking = threading.Timer(after, self.warm, (model,))
            self._waking.daemon = True
            self._waking.start()
            return
        threading.Thread(target=self._learn, daemon=True).start()
        self._keeper.live().send(Call("request", "warm", {"model": model}))

    def _learn(self) -> None:
        """Ask what the worker offers before a long job keeps it busy."""
        # Who needs it asks again, and is told.
        with contextlib.suppress(AnalysisError):
            self.describe(HUNG)

    def status(self) -> dict[str, Any]:
        """The (first) worker: {"state": "cold" | "starting" | "ready" | "busy" | "silent", "pid": int | None, "memory":
        bytes}."""
        return self._keeper.state()

    def silent(self) -> dict[str, float]:
        """Id of each job of this app whose worker was stopped or hangs -> seconds since its last heartbeat."""
        return {job: still for keeper in self._keepers for job, still in keeper.silent().items()}

    def restart(self) -> None:
        """Ends workers that are silent; new ones take up what those had begun, a job at its last checkpoint."""
        for keeper in self._keepers:
            keeper.restart()

    def close(self) -> None:
        """Ends the worker; this app's unfinished jobs become interrupted."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        if self._waking is not None:
            self._waking.cancel()
        for runner in self._runners:
            runner.stop()
        for keeper in self._keepers:
            keeper.close()
        for runner in self._runners:
            runner.join(10)
        # What cannot be written now is seen when the store is opened again.
        with contextlib.suppress(AnalysisError):
            self._table.interrupt(self._lease.owner, "Focuscope was closed before this job ended: resume it to go on.")
        self._lease.release()

    def _make_keeper(self) -> Keeper:
        store, fd = self._store, self._lease.fd
        command = ["-m", "analysis.jobs.worker", "--root", str(store.root), "--studies", self._studies]
        command += ["--examples", str(store.examples)] if store.examples else []
        command += ["--lease", str(fd)]
        log = store.root / "worker.log"
        return Keeper(lambda: WorkerProcess(command, log, (fd,)), log)

    def _settle(self) -> None:
        """Jobs whose app and worker are both gone are interrupted."""
        for owner in self._table.owners():
            if owner != self._lease.owner and not is_alive(self._owners, owner):
                self._table.interrupt(owner, "Focuscope stopped while this job waited or ran: resume it to go on.")


def kept() -> dict[str, Any] | None:
    """The description of the methods that was kept last; None where their files were changed since."""
    content = read_json(PLACE)
    return {"methods": content["methods"]} if content and content.get("sources") == sources() else None


def keep(methods: dict[str, dict]) -> None:
    """Keep what methods say of themselves, with a fingerprint of the sources that it follows from."""
    write_json(PLACE, {"sources": sources(), "methods": methods})


def sources() -> str:
    """Twelve digits that name the files in which methods are written."""
    digest = hashlib.sha256()
    for path in sorted(ROOT.glob("methods/*.py")):
        digest.update(path.read_bytes().replace(b"\r\n", b"\n"))
    return digest.hexdigest()[:12]
