"""Where something is broken on purpose: a store of its own with a stored run, a long job, a short request."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.jobs import Jobs, JobStatus
from analysis.jobs.client import STUDIES
from analysis.runs import Run, RunStore

PROJECT = Path(__file__).resolve().parents[2]
PATIENCE = 300  # seconds for what takes a few on a quiet machine


class Broken(Exception):
    """Something that must hold did not; the message says what."""


def hold(condition: object, words: str) -> None:
    """Raise Broken with these words unless the condition holds."""
    if not condition:
        raise Broken(words)


def readable(said: str | None) -> None:
    """Hold that a sentence is one for a reader: there is one, it ends, and it is no traceback."""
    hold(said and "Traceback" not in said and said.rstrip().endswith((".", "!")), f"the sentence is {said!r}")


def until(condition: Callable[[], object], words: str, seconds: float = PATIENCE) -> object:
    """The condition's value as soon as it is true; Broken with `words` when it never is."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        hold(time.monotonic() < end, words)
        time.sleep(0.02)
    return value


@dataclass
class Scene:
    """`long`, `quick`, `other` and `greedy` are (verb, arguments): a job with a checkpoint, a request whose run is
    stored before anything breaks, another one that follows, and one that asks for much memory. `waits(status)`: whether
    the long job is in its middle."""

    root: Path
    studies: str = STUDIES
    long: tuple[str, dict] = ("", {})
    quick: tuple[str, dict] = ("", {})
    other: tuple[str, dict] = ("", {})
    greedy: tuple[str, dict] = ("", {})
    waits: Callable[[JobStatus], bool] = field(default=lambda status: status.fraction > 0.1)

    @contextlib.contextmanager
    def client(self) -> Iterator[Jobs]:
        """A fresh client on the store, which it has as `.store`; the bundled texts are in it."""
        store = RunStore(self.root)
        store.samples()
        jobs = Jobs(store, self.studies)
        jobs.store = store
        try:
            yield jobs
        finally:
            jobs.close()
            store.close()

    def ask(self, jobs: Jobs, request: tuple[str, dict]) -> Run:
        """The run that answers a request, however busy the machine is."""
        return jobs.request(*request, timeout=PATIENCE)

    def begin(self, jobs: Jobs) -> str:
        """Id of the long job, once it is in its middle."""
        job = jobs.submit(*self.long)
        until(lambda: (now := jobs.watch(job)).ended or self.waits(now), "the long job did not begin")
        hold(not jobs.watch(job).ended, f"the long job ended early: {jobs.watch(job).error}")
        return job

    def ended(self, jobs: Jobs, job: str) -> JobStatus:
        """The status of a job once it has ended."""
        return until(lambda: (now := jobs.watch(job)).ended and now, "the job did not end")

    def goes_on(self, jobs: Jobs, kept: str) -> None:
        """Hold that what was stored is whole and that the next request is answered."""
        run = jobs.store.open(kept)
        for name in run.tables:
            run.columns(name)
        for name in run.arrays:
            run.array(name)
        hold(self.ask(jobs, self.other).id, "the next request was not answered")

    def refused(self, act: Callable[[], object]) -> str:
        """The sentence with which an act is refused."""
        try:
            act()
        except AnalysisError as error:
            readable(str(error))
            return str(error)
        raise Broken("it was not refused")
