"""Where something is broken on purpose: a store of its own with a stored run, a long job, a short request."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysis.commands import named
from analysis.corpus import sample_texts, text_hash
from analysis.errors import AnalysisError
from analysis.jobs import Jobs, JobStatus
from analysis.jobs.client import STUDIES
from analysis.runs import Run, RunStore

PROJECT = Path(__file__).resolve().parents[2]
PATIENCE = 300  # seconds for what takes a few on a quiet machine
Asked = tuple[str, dict[str, Any]]  # a verb and its arguments


class Broken(Exception):
    """Something that must hold did not; the message says what."""


def hold(condition: object, words: str) -> None:
    """Raise Broken with these words unless the condition holds."""
    if not condition:
        raise Broken(words)


def readable(words: str | None) -> None:
    """Hold that a sentence is one for a reader: there is one, it ends, and it is no traceback."""
    hold(words and "Traceback" not in words and words.rstrip().endswith((".", "!")), f"the sentence is {words!r}")


def until(condition: Callable[[], Any], words: str, seconds: float = PATIENCE) -> Any:
    """The condition's value as soon as it is true; Broken with `words` when it never is."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        hold(time.monotonic() < end, words)
        time.sleep(0.02)
    return value


@dataclass
class Scene:
    """What is asked while something breaks. `waits(status)`: whether the long job is in its middle."""

    root: Path
    studies: str = STUDIES
    long: Asked = ("", {})  # a job with a checkpoint
    quick: Asked = ("", {})  # a request whose run is stored before anything breaks
    other: Asked = ("", {})  # one that follows
    greedy: Asked = ("", {})  # one that asks for much memory
    waits: Callable[[JobStatus], bool] = field(default=lambda status: status.fraction > 0.1)

    @contextlib.contextmanager
    def client(self) -> Iterator[Jobs]:
        """A fresh client on the store, which it has as `.store`; the bundled texts are in it."""
        store = RunStore(self.root)
        store.samples()
        with contextlib.closing(Jobs(store, self.studies)) as jobs:
            jobs.store = store
            yield jobs

    def ask(self, jobs: Jobs, request: Asked) -> Run:
        """The run that answers a request, however busy the machine is."""
        return jobs.request(named(*request), timeout=PATIENCE)

    def begin(self, jobs: Jobs) -> str:
        """Id of the long job, once it is in its middle."""
        job = jobs.submit(named(*self.long))
        until(lambda: (now := jobs.watch(job)).ended or self.waits(now), "the long job did not begin")
        hold(not jobs.watch(job).ended, f"the long job ended early: {jobs.watch(job).error}")
        return job

    def ended(self, jobs: Jobs, job: str) -> JobStatus:
        """The status of a job once it has ended."""
        return until(lambda: (now := jobs.watch(job)).ended and now, "the job did not end")

    def goes_on(self, jobs: Jobs, standing: str) -> None:
        """Hold that what was stored is whole and that the next request is answered."""
        whole(jobs.store.open(standing))
        hold(self.ask(jobs, self.other).id, "the next request was not answered")

    def resumes(self, jobs: Jobs, job: str, standing: str) -> str:
        """Hold that a job was interrupted, that all goes on, and that the job does too; the sentence it was told."""
        status = self.ended(jobs, job)
        hold(status.state == "interrupted", f"the job is {status.state}")
        readable(status.error)
        self.goes_on(jobs, standing)
        again = self.ended(jobs, jobs.resume(job))
        hold(again.state == "done", f"the resumed job is {again.state}: {again.error}")
        return str(status.error)


def whole(run: Run) -> Run:
    """Read all of a run."""
    for name in run.tables:
        run.columns(name)
    for name in run.arrays:
        run.array(name)
    return run


def refused(act: Callable[[], object]) -> str:
    """The sentence with which an act is refused."""
    try:
        act()
    except AnalysisError as error:
        readable(str(error))
        return str(error)
    raise Broken("it was not refused")


def real(root: Path) -> Scene:
    """With the project's studies and the bundled model: a training with checkpoints as the long job, the groups of a
    text as what is stored before anything breaks."""
    texts = sorted(text_hash(text) for _, text in sample_texts().values())
    story = text_hash(sample_texts()["story"][1])
    training = {"model": "demo", "corpus": "+".join(texts), "steps": 3, "tokens_per_step": 512, "label": "stress"}
    return Scene(
        root,
        long=("train-router", training),
        quick=("groups", {"model": "demo", "text": story, "router": "k8-top1", "long_text": "first"}),
        other=("inspect", {"model": "demo", "text": texts[0]}),
        greedy=("train-router", training | {"steps": 1, "tokens_per_step": 8192, "label": "greedy"}),
        waits=lambda status: ", step " in status.stage and status.fraction > 0.1,
    )
