"""What breaks, broken for real: killed processes, a full disk, damaged files, no memory. After each, nothing stored is
lost, a sentence says what happened, and the next request is answered.

A second app, in a process that may be killed: `python -m tests.stress.faults submit ROOT STUDIES JOB` queues a job,
prints its id and the worker's, and stays; `fill ROOT STUDIES REQUEST OTHER` fills the disk below ROOT, prints how a
request is refused, makes room and goes on.
"""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from analysis.commands import named
from analysis.errors import AnalysisError
from tests.stress.rows import Row
from tests.stress.scene import PROJECT, Broken, Scene, hold, readable, refused, until, whole

ROOM = 8 << 20  # bytes a worker may still take when its memory is limited: every study takes more
DISK = "8m"  # size of the disk that gets full
OFFLINE = {**os.environ, "HF_HUB_OFFLINE": "1"}


def worker_killed(scene: Scene) -> str:
    """kill -9 of the worker in the middle of a job."""
    with scene.client() as jobs:
        standing = scene.ask(jobs, scene.quick).id
        job = scene.begin(jobs)
        os.kill(jobs.status()["pid"], signal.SIGKILL)
        return scene.resumes(jobs, job, standing)


def app_killed(scene: Scene) -> str:
    """kill -9 of the app in the middle of a job: its worker ends too, and another app goes on."""
    with scene.client() as jobs:
        standing = scene.ask(jobs, scene.quick).id
    words = ["submit", str(scene.root), scene.studies, json.dumps(scene.long)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    command = [sys.executable, "-m", "tests.stress.faults", *words]
    app = subprocess.Popen(command, cwd=PROJECT, env=OFFLINE, text=True, **pipes)
    job, worker = app.stdout.readline().split()
    with scene.client() as jobs:
        until(lambda: scene.waits(jobs.watch(job)), "the job of the other app did not begin")
        app.kill()
        app.communicate()
        sentence = scene.resumes(jobs, job, standing)
        hold(not psutil.pid_exists(int(worker)) or psutil.Process(int(worker)).status() == "zombie", "its worker lives")
        return sentence


def full_disk(scene: Scene) -> str:
    """A file system without a free byte (a tmpfs of its own): refused in a sentence, and it goes on with room again."""
    folder = scene.root / "disk"
    folder.mkdir(parents=True)
    script = f"mount -t tmpfs -o size={DISK} tmpfs {folder} && exec {sys.executable} -m tests.stress.faults fill"
    words = [str(folder), scene.studies, json.dumps(scene.quick), json.dumps(scene.other)]
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", script + ' "$@"', "sh", *words]
    done = subprocess.run(command, cwd=PROJECT, env=OFFLINE, capture_output=True, text=True, timeout=600)
    hold(done.returncode == 0, done.stderr.strip().rsplit("\n", 1)[-1] or "the full disk could not be made here")
    sentence = done.stdout.strip().rsplit("\n", 1)[-1]
    readable(sentence)
    hold("full" in sentence, f"the sentence does not speak of the disk: {sentence}")
    return sentence


def damaged_run(scene: Scene, file: str) -> str:
    """Half of a file of a stored run: set aside, said, computed anew; the others stay."""
    with scene.client() as jobs:
        store = jobs.store
        standing, run = scene.ask(jobs, scene.other), scene.ask(jobs, scene.quick)
        path = next(iter([*run.folder.glob(file), *run.folder.rglob("*.parquet"), run.folder / "manifest.json"]))
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        try:
            whole(scene.ask(jobs, scene.quick))
        except AnalysisError as error:  # the first reading may be what finds the damage
            readable(str(error))
            whole(scene.ask(jobs, scene.quick))
        sentences = store.damaged()
        hold(len(sentences) == 1 and run.id in sentences[0], f"{len(sentences)} damaged runs are told of")
        readable(sentences[0])
        hold(store.open(standing.id).numbers == standing.numbers, "another run was lost")
        return sentences[0]


def no_memory(scene: Scene) -> str:
    """A worker that gets no more memory in a job: the job fails with a sentence, and another worker answers."""
    with scene.client() as jobs:
        standing = scene.ask(jobs, scene.quick).id
        worker = psutil.Process(jobs.status()["pid"])
        limit = worker.memory_info().vms + ROOM
        worker.rlimit(psutil.RLIMIT_AS, (limit, psutil.RLIM_INFINITY))
        status = scene.ended(jobs, jobs.submit(named(*scene.greedy)))
        hold(status.state in ("failed", "interrupted"), f"the job is {status.state}")
        readable(status.error)
        hold("memory" in str(status.error), f"the sentence does not speak of memory: {status.error}")
        scene.goes_on(jobs, standing)
        hold(jobs.status()["pid"] != worker.pid, "the worker that ran out of memory answers")
        return str(status.error)


def cut_model(scene: Scene) -> str:
    """A model whose weights are truncated: refused in a sentence; the bundled one still loads."""
    folder = scene.root / "cut-model"
    shutil.copytree(PROJECT / "models_cache" / "demo", folder, ignore=shutil.ignore_patterns("examples", "studies"))
    weights = next(folder.glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    command = [sys.executable, "-m", "analysis", "model", "--model", str(folder)]
    done = subprocess.run(command, cwd=PROJECT, env=OFFLINE, capture_output=True, text=True, timeout=600)
    sentence = done.stderr.strip().rsplit("\n", 1)[-1]
    hold(done.returncode == 2, f"it ended with status {done.returncode}")
    readable(sentence)
    with scene.client() as jobs:
        scene.goes_on(jobs, scene.ask(jobs, scene.quick).id)
    return sentence.replace(str(folder), "FOLDER")


FAULTS: dict[str, Callable[[Scene], str]] = {
    "worker killed in mid-job": worker_killed,
    "app killed in mid-job": app_killed,
    "full disk": full_disk,
    "corrupt run folder": lambda scene: damaged_run(scene, "manifest.json"),
    "truncated safetensors of a run": lambda scene: damaged_run(scene, "*.safetensors"),
    "truncated safetensors of a model": cut_model,
    "worker out of memory": no_memory,
}


def broken(scenes: Callable[[str], Scene], names: list[str] | None = None) -> Iterator[Row]:
    """One row per fault, each in a scene of its own; what did not hold stands in the row."""
    for name in names or FAULTS:
        try:
            yield Row(name, 1, 1, FAULTS[name](scenes(name)))
        except (Broken, AnalysisError, OSError) as error:
            yield Row(name, 1, 0, f"did not hold: {error}")


def submit(root: str, studies: str, job: str) -> None:
    """Runs until it is killed or its input ends."""
    with Scene(Path(root), studies).client() as jobs:
        submitted = jobs.submit(named(*json.loads(job)))
        print(submitted, until(lambda: jobs.status()["pid"], "no worker began"), flush=True)
        sys.stdin.read()


def fill(root: str, studies: str, request: str, following: str) -> None:
    """Prints the sentence of a full disk, once everything else has held."""
    scene = Scene(Path(root), studies, quick=json.loads(request), other=json.loads(following))
    filler = Path(root) / "filler"
    with scene.client() as jobs:
        standing = scene.ask(jobs, scene.quick).id
        with filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"\0" * 4096)
            except OSError as error:
                hold(error.errno == errno.ENOSPC, f"the disk did not fill: {error}")
        sentence = refused(lambda: scene.ask(jobs, scene.other))
        hold(shutil.disk_usage(root).free == 0, "there is room")
        jobs.store.open(standing)
        filler.unlink()
        scene.goes_on(jobs, standing)
    print(sentence)


if __name__ == "__main__":
    {"submit": submit, "fill": fill}[sys.argv[1]](*sys.argv[2:])
