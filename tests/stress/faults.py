"""What breaks, broken for real: killed processes, a full disk, damaged files, no memory. After each, nothing stored is
lost, a sentence says what happened, and the next request is answered."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from analysis.errors import AnalysisError
from analysis.jobs import Jobs
from analysis.runs import Run
from tests.stress.rows import Row
from tests.stress.scene import PROJECT, Broken, Scene, hold, readable, until

ROOM = 8 << 20  # bytes a worker may still take when its memory is limited: every study takes more
DISK = "8m"  # size of the disk that gets full


def worker_killed(scene: Scene) -> str:
    """kill -9 of the worker in the middle of a job."""
    with scene.client() as jobs:
        kept = scene.ask(jobs, scene.quick).id
        job = scene.begin(jobs)
        os.kill(jobs.status()["pid"], signal.SIGKILL)
        status = scene.ended(jobs, job)
        hold(status.state == "interrupted", f"the job is {status.state}")
        readable(status.error)
        scene.goes_on(jobs, kept)
        again = scene.ended(jobs, jobs.resume(job))
        hold(again.state == "done", f"the resumed job is {again.state}: {again.error}")
        return status.error


def app_killed(scene: Scene) -> str:
    """kill -9 of the app in the middle of a job: its worker ends too, and another app goes on."""
    with scene.client() as jobs:
        kept = scene.ask(jobs, scene.quick).id
    words = [str(scene.root), scene.studies, json.dumps(scene.long)]
    app = _python("-m", "tests.stress.bystander", "submit", *words)
    job, worker = app.stdout.readline().split()
    with scene.client() as jobs:
        until(lambda: scene.waits(jobs.watch(job)), "the job of the other app did not begin")
        app.kill()
        app.communicate()
        status = scene.ended(jobs, job)
        hold(status.state == "interrupted", f"the job is {status.state}")
        readable(status.error)
        hold(not psutil.pid_exists(int(worker)) or psutil.Process(int(worker)).status() == "zombie", "its worker lives")
        scene.goes_on(jobs, kept)
        again = scene.ended(jobs, jobs.resume(job))
        hold(again.state == "done", f"the resumed job is {again.state}: {again.error}")
        return status.error


def full_disk(scene: Scene) -> str:
    """A file system without a free byte (a tmpfs of its own): refused in a sentence, and it goes on with room again."""
    folder = scene.root / "disk"
    folder.mkdir(parents=True)
    script = f"mount -t tmpfs -o size={DISK} tmpfs {folder} && exec {sys.executable} -m tests.stress.bystander fill"
    words = [str(folder), scene.studies, json.dumps(scene.quick), json.dumps(scene.other)]
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", script + ' "$@"', "sh", *words]
    done = subprocess.run(command, cwd=PROJECT, env=_environment(), capture_output=True, text=True, timeout=600)
    hold(done.returncode == 0, done.stderr.strip().rsplit("\n", 1)[-1] or "the full disk could not be made here")
    said = done.stdout.strip().rsplit("\n", 1)[-1]
    readable(said)
    hold("full" in said, f"the sentence does not speak of the disk: {said}")
    return said


def damaged_run(scene: Scene, damage: Callable[[Path], None]) -> str:
    """A stored run whose files are not what was written: set aside, said, computed anew; the others stay."""
    with scene.client() as jobs:
        kept, run = scene.ask(jobs, scene.other), scene.ask(jobs, scene.quick)
        damage(run.folder)
        again = _fresh(jobs, scene, run)
        hold(not again.cached or again.folder != run.folder or again.created >= run.created, "the damage was read")
        said = jobs.store.damaged()
        hold(len(said) == 1 and run.id in said[0], f"{len(said)} damaged runs are told of")
        readable(said[0])
        hold(jobs.store.open(kept.id).numbers == kept.numbers, "another run was lost")
        return said[0]


def _fresh(jobs: Jobs, scene: Scene, run: Run) -> Run:
    """The run asked for again and read whole; the first reading may be what finds the damage."""
    for last in (False, True):
        found = scene.ask(jobs, scene.quick)
        try:
            for name in found.tables:
                found.columns(name)
            for name in found.arrays:
                found.array(name)
            return found
        except AnalysisError as error:
            readable(str(error))
            if last:
                raise
    raise Broken(run.id)


def lost_manifest(folder: Path) -> None:
    """Half of a run's manifest."""
    path = folder / "manifest.json"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def cut_tensors(folder: Path) -> None:
    """A truncated safetensors file, or half a table where a run has no arrays."""
    path = next(iter([*folder.glob("*.safetensors"), *folder.rglob("*.parquet"), folder / "manifest.json"]))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def damaged_index(scene: Scene) -> str:
    """The lists of runs and texts overwritten, while they are closed and while they are open: made from the folders."""
    with scene.client() as jobs:
        kept = scene.ask(jobs, scene.quick)
    for name in ("runs.json", "texts.json"):
        (scene.root / name).write_bytes(b"no list " * 4000)
    with scene.client() as jobs:
        hold(jobs.store.find(*scene.quick) is not None, "the stored run was lost with the index")
        hold(kept.id in [run.id for run in jobs.store.list()], "the index was not rebuilt")
        for name in ("runs.json", "texts.json"):
            (scene.root / name).write_bytes(b"\xff" * 4000)
        scene.goes_on(jobs, kept.id)
        hold(scene.ended(jobs, jobs.submit(*scene.other)).state == "done", "no job could be queued any more")
    return "The lists were rebuilt from the run folders, twice."


def no_memory(scene: Scene) -> str:
    """A worker that gets no more memory in a job: the job fails with a sentence, and another worker answers."""
    with scene.client() as jobs:
        kept = scene.ask(jobs, scene.quick).id
        worker = psutil.Process(jobs.status()["pid"])
        limit = worker.memory_info().vms + ROOM
        worker.rlimit(psutil.RLIMIT_AS, (limit, psutil.RLIM_INFINITY))
        status = scene.ended(jobs, jobs.submit(*scene.greedy))
        hold(status.state in ("failed", "interrupted"), f"the job is {status.state}")
        readable(status.error)
        hold("memory" in status.error, f"the sentence does not speak of memory: {status.error}")
        scene.goes_on(jobs, kept)
        hold(jobs.status()["pid"] != worker.pid, "the worker that ran out of memory answers")
        return status.error


def cut_model(scene: Scene) -> str:
    """A model whose weights are truncated: refused in a sentence; the bundled one still loads."""
    folder = scene.root / "cut-model"
    shutil.copytree(PROJECT / "models_cache" / "demo", folder, ignore=shutil.ignore_patterns("examples", "studies"))
    weights = next(folder.glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    command = [sys.executable, "-m", "analysis", "model", "--model", str(folder)]
    done = subprocess.run(command, cwd=PROJECT, env=_environment(), capture_output=True, text=True, timeout=600)
    said = done.stderr.strip().rsplit("\n", 1)[-1]
    hold(done.returncode == 2, f"it ended with status {done.returncode}")
    readable(said)
    with scene.client() as jobs:
        scene.goes_on(jobs, scene.ask(jobs, scene.quick).id)
    return said.replace(str(folder), "FOLDER")


FAULTS: dict[str, Callable[[Scene], str]] = {
    "worker killed in mid-job": worker_killed,
    "app killed in mid-job": app_killed,
    "full disk": full_disk,
    "corrupt run folder": lambda scene: damaged_run(scene, lost_manifest),
    "truncated safetensors of a run": lambda scene: damaged_run(scene, cut_tensors),
    "truncated safetensors of a model": cut_model,
    "corrupt index": damaged_index,
    "worker out of memory": no_memory,
}


def broken(scenes: Callable[[str], Scene], names: list[str] | None = None) -> Iterator[Row]:
    """One row per fault, each in a scene of its own; what did not hold stands in the row."""
    for name in names or FAULTS:
        try:
            yield Row(name, 1, 1, FAULTS[name](scenes(name)))
        except (Broken, AnalysisError, OSError) as error:
            yield Row(name, 1, 0, f"did not hold: {error}")


def _python(*words: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=PROJECT,
        env=_environment(),
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def _environment() -> dict[str, str]:
    return {**os.environ, "HF_HUB_OFFLINE": "1"}
