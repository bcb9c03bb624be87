"""A worker of quick studies for the tests of requests and jobs, and how to wait for it."""

import time
from pathlib import Path

import pytest

from analysis.declaration.undeclared import Undeclared
from analysis.jobs import Jobs, keeper
from analysis.runs import RunStore

ROOT = Path(__file__).parents[2]
STUDIES = "tests.made.fake_studies:STUDIES"
SLOW = 200  # seconds a loaded machine may need for what takes a tenth of one; nothing is held against it


ENGINES = ["processes", pytest.param("ray", marks=pytest.mark.slow)]  # `--all` installs Ray


def engine(name, store, workers=1, **options):
    """A client of quick studies whose workers are processes here, or actors of Ray."""
    if name == "processes":
        return Jobs(store, STUDIES, workers)
    pytest.importorskip("ray", reason="Ray is not installed (requirements-ray.txt)")
    from analysis.cluster import RayJobs

    return RayJobs(store, STUDIES, workers, **({"cpus": 0.1} | options))


def emptied(jobs):
    """A client whose queue and store are as on the first day; its worker stays."""
    for job in jobs.active():
        jobs.cancel(job.id)
    until(lambda: not jobs.active() and jobs._keeper.load == 0)
    root = jobs.store.root
    for pattern in ("began-*", "open-*", "count-*", "jobs/*.json", "jobs/progress/*.json"):
        for path in root.glob(pattern):
            path.unlink()
    for run in jobs.store.list(limit=1000):
        jobs.store.delete(run.id)
    return jobs


def opened(root, name="processes"):
    """A client with a worker of quick studies, and its `store`; closed afterwards."""
    store = RunStore(root)
    jobs = engine(name, store)
    jobs.store = store
    yield jobs
    jobs.close()


def until(condition, seconds=SLOW):
    """What `condition` gives, once that is true."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)
    return value


def ended(jobs, job_id, seconds=SLOW):
    """The status of a job that has ended."""
    return until(lambda: (status := jobs.watch(job_id)).ended and status, seconds)


def began(jobs, name):
    """Wait until a study of this name is in its middle."""
    until((jobs.store.root / f"began-{name}").exists)


def open_gate(jobs, name):
    """Let a study that waits at its gate go on."""
    (jobs.store.root / f"open-{name}").touch()


def warm(jobs):
    """A worker that is up: its process id."""
    return jobs.request(Undeclared("echo", {"value": -1})).numbers["pid"]


def overdue(monkeypatch):
    """From now on whoever asks gives up as soon as the worker has begun, as if its time were over."""
    monkeypatch.setattr(keeper, "_answered", lambda call, *_: not until(lambda: call.begun))
