"""A second app of the fault tests, in a process that may be killed: `python -m tests.stress.bystander WHAT ...`.

submit ROOT STUDIES JOB            puts a job into the queue, prints its id and the worker's, and stays
fill ROOT STUDIES REQUEST OTHER    fills the disk below ROOT, prints how a request is refused, makes room and goes on
"""

import errno
import json
import shutil
import sys
import time
from pathlib import Path

from tests.stress.scene import Scene


def submit(root: str, studies: str, job: str) -> None:
    """Runs until it is killed or its input ends."""
    with Scene(Path(root), studies).client() as jobs:
        submitted = jobs.submit(*json.loads(job))
        while jobs.status()["pid"] is None:
            time.sleep(0.05)
        print(submitted, jobs.status()["pid"], flush=True)
        sys.stdin.read()


def fill(root: str, studies: str, request: str, other: str) -> None:
    """Prints the sentence of a full disk, once everything else has held."""
    scene = Scene(Path(root), studies, quick=json.loads(request), other=json.loads(other))
    with scene.client() as jobs:
        kept = scene.ask(jobs, scene.quick).id
        filler = Path(root) / "filler"
        with filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"\0" * 4096)
            except OSError as error:
                assert error.errno == errno.ENOSPC, error
        said = scene.refused(lambda: scene.ask(jobs, scene.other))
        assert shutil.disk_usage(root).free == 0
        jobs.store.open(kept)
        filler.unlink()
        scene.goes_on(jobs, kept)
    print(said)


if __name__ == "__main__":
    {"submit": submit, "fill": fill}[sys.argv[1]](*sys.argv[2:])
