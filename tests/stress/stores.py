"""Ends of what changes a store of runs: each act on a store of every kind of thing, and what must hold afterwards."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

from analysis.declaration.undeclared import Undeclared
from analysis.errors import AnalysisError
from analysis.jobs.table import JobTable
from analysis.runs import Run, RunStore, bundle, texts
from analysis.runs.keys import is_id
from tests.made.stored_runs import put
from tests.stress.kills import Case
from tests.stress.scene import hold, whole

BEFORE = "before.json"  # what stood before: `runs` (oldest, other, pinned), `deleted`, `texts`, `job`
BROUGHT = range(20, 24)  # seeds of the runs of another store, in a bundle
Act = Callable[[RunStore], object]
Also = Callable[[RunStore, dict], object]


def opened(root: Path) -> RunStore:
    """The store below a folder."""
    return RunStore(root / "state")


def before(store: RunStore) -> dict:
    """What stood before."""
    return json.loads((store.root.parent / BEFORE).read_text())


def prepare(root: Path, first: Act) -> None:
    """A store with runs, texts, a job and a deleted run, a bundle of another store beside it; `first` adds to it."""
    store = opened(root)
    keys = [store.put_text(f"a text of its own {number}", f"{number}.txt") for number in range(3)]
    runs = [put(store, seed=seed, text=keys[seed % 3]) for seed in (2, 1, 0, 3)]
    store.pin(runs[2].id)
    store.discard(runs[3].id)
    jobs = JobTable(store.root)
    job = jobs.add("key", Undeclared("count", {"steps": 3}), "me", "owner")
    jobs.finish(job, "done", run=runs[0].id)
    first(store)
    stood = {"runs": [run.id for run in runs[:3]], "deleted": runs[3].id, "texts": keys, "job": job}
    (root / BEFORE).write_text(json.dumps(stood))
    stranger = RunStore(root / "elsewhere")
    brought = [put(stranger, seed=seed, text=stranger.put_text(f"brought {seed}", "b.txt")).id for seed in BROUGHT]
    stranger.bundle(brought, root / "runs.zip")


def check(root: Path, goes: tuple[int, ...], also: Also) -> None:
    """Hold that all that stood before is there whole but for the runs (0 to 2) that the act takes away, those whole or
    gone, that every row can be opened and every folder is listed, and that no draft is left."""
    store = opened(root)
    stood = before(store)
    listed = {row.id for row in store.search()}
    may_go = [stood["runs"][index] for index in goes]
    for index, run_id in enumerate(stood["runs"]):
        hold(run_id in listed or run_id in may_go, f"the run {index} is lost")
    for run_id in listed:
        # One that was damaged before is seen now at the latest.
        if store.has(run_id) or run_id not in may_go:
            whole(store.open(run_id))
    listed = {row.id for row in store.search()}
    folders = {path.name for path in (root / "state" / "runs").iterdir() if not path.name.startswith(".damaged-")}
    hold(folders == listed and all(map(is_id, folders)), f"{sorted(folders ^ listed)} is a folder or a row alone")
    for run in store.deleted():
        whole(run)
    for key in [*stood["texts"], *(key for key, *_ in store.texts())]:
        hold(store.text(key), "a text is lost")
    jobs = JobTable(store.root)
    hold(jobs.status(stood["job"]).state == "done", "the job is lost")
    hold(all(jobs.status(job.id) for job in jobs.recent()), "a job cannot be opened")
    also(store, stood)
    left = [path.name for pattern in (".tmp-*", ".old-*") for path in (root / "state").rglob(pattern)]
    hold(not left, f"{left} is left over")


def in_trash(store: RunStore, stood: dict) -> None:
    """The deleted run is in the trash or listed, the other one too."""
    gone = {run.id for run in store.deleted()}
    for run_id in (stood["deleted"], stood["runs"][1]):
        hold(run_id in gone or store.has(run_id), "a run is neither in the trash nor here")


def still_deleted(store: RunStore, stood: dict) -> None:
    """The deleted run can still be brought back."""
    hold([run.id for run in store.deleted()] == [stood["deleted"]], "the trash is lost")


def all_or_nothing(store: RunStore, stood: dict) -> None:
    """The import is here with all runs and texts, or nothing of it is; and the bundle can be opened again."""
    came = [row.id for row in store.search() if row.id not in stood["runs"]]
    brought = [key for key, name, *_ in store.texts() if name == "b.txt"]
    hold((len(came), len(brought)) in ((0, 0), (len(BROUGHT),) * 2), f"{len(came)} runs, {len(brought)} texts came")
    again = store.unbundle(store.root.parent / "runs.zip")
    hold(len(again.new) + len(again.known) == len(BROUGHT), "the bundle cannot be opened again")
    still_deleted(store, stood)


def failing_import(store: RunStore) -> None:
    """An import for whose last run the disk has no room."""
    begun, bring = [], store.take

    def take(folder: Path) -> None:
        begun.append(folder)
        if len(begun) == len(BROUGHT):
            raise OSError(28, "No space left on device")
        bring(folder)

    store.take = take
    with contextlib.suppress(AnalysisError):
        store.unbundle(store.root.parent / "runs.zip")
        raise AssertionError("it was not refused")


def forget_old_texts(store: RunStore) -> None:
    """New texts that push out older ones which no run names."""
    texts.KEPT = 2
    for number in range(4):
        store.put_text(f"a newer text {number}", "new.txt")


def run_jobs(store: RunStore) -> None:
    """A job of every end."""
    jobs = JobTable(store.root)
    ids = [jobs.add(f"key {number}", Undeclared("count"), "me", "now") for number in range(3)]
    jobs.claim("now")
    jobs.progress(ids[0], 0.5, "half", 1.0, {"step": [1]})
    jobs.finish(ids[0], "done", run="0" * 12)
    jobs.ask_cancel(ids[1])
    jobs.interrupt("now", "It was closed.")


def damage(store: RunStore) -> None:
    """The pinned run's manifest cut in half."""
    path = store.root / "runs" / next(row.id for row in store.search() if row.pinned) / "manifest.json"
    path.write_bytes(path.read_bytes()[:100])


def set_aside(store: RunStore, stood: dict) -> None:
    """What is left of the damaged run is kept."""
    hold(not store.has(stood["runs"][2]), "the damage was not seen")
    hold(list(store.root.glob("runs/.damaged-*/tables/tokens.parquet")), "what was left of it is gone")


def asked_again(store: RunStore) -> Run:
    """A run whose former answer does not count any more, computed anew."""
    run = store.open(before(store)["runs"][1])
    (store.root / "outdated").mkdir(exist_ok=True)
    (store.root / "outdated" / run.id).touch()
    return put(store, value=2.0, **{name: run.request[name] for name in ("seed", "text")})


def case(act: Act, *goes: int, first: Act = lambda store: None, also: Also = still_deleted) -> Case:
    """A case of an act on the store, which takes the runs `goes` away or may do so."""

    def do(root: Path) -> None:
        # A second of another process, which changes nothing.
        bundle.prove = lambda folders: None
        store = opened(root)
        act(store)

    def hold_all(root: Path) -> None:
        bundle.prove = lambda folders: None
        check(root, goes, also)

    return Case(lambda root: prepare(root, first), do, hold_all)


def other(name: str) -> Act:
    """What the store is asked to do with the other run."""
    return lambda store: getattr(store, name)(before(store)["runs"][1])


STORE = {
    "a new run": case(lambda store: put(store, seed=50)),
    "two new runs": case(lambda store: [put(store, seed=seed) for seed in (50, 51)]),
    "a run that pushes out the oldest": case(
        lambda store: put(store, seed=50), 0, first=lambda store: store.keep(2, 10**9)
    ),
    "a run computed anew": case(asked_again, 1, also=in_trash),
    "a pin": case(other("pin")),
    "a run deleted": case(other("delete"), 1),
    "a run moved to the trash": case(other("discard"), 1, also=in_trash),
    "a run brought back": case(lambda store: store.restore(before(store)["deleted"]), also=in_trash),
    "the trash emptied": case(lambda store: store.empty(), also=lambda store, stood: None),
    "a router replaced": case(lambda store: store.forget("router", "k8-top1", "demo"), 1, also=in_trash),
    "fewer runs kept": case(lambda store: store.keep(1, 10**9), 0, 1),
    "texts beyond the limit": case(forget_old_texts),
    "a damaged run set aside": case(lambda store: store.has(before(store)["runs"][2]), 2, first=damage, also=set_aside),
    "the list of jobs": case(run_jobs),
    "an import": case(lambda store: store.unbundle(store.root.parent / "runs.zip"), also=all_or_nothing),
    "an import taken back": case(failing_import, also=all_or_nothing),
}
