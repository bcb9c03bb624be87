"""Stores, imports, fits and trainings killed at every write: `python -m tests.stress.kills WHAT FOLDER EVERY` prints a
line of JSON for each case of WHAT, which is ended at each change of the disk, or at one of EVERY."""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from tests.stress.rows import Row
from tests.stress.scene import PROJECT

CASES = {"stores": "STORE", "fits": "FITS"}


def tried(what: str, folder: Path, every: int = 1) -> Iterator[Row]:
    """One row per case, from a process of its own: who forks must have no thread that its children would miss."""
    command = [sys.executable, "-m", "tests.stress.kills", what, str(folder), str(every)]
    quiet = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    options = {"cwd": PROJECT, "env": quiet, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with (folder / f"{what}.log").open("w") as log, subprocess.Popen(command, **options | {"stderr": log}) as running:
        for line in running.stdout:
            yield Row(**json.loads(line))
    if running.returncode:
        words = (folder / f"{what}.log").read_text().strip().rsplit("\n", 1)[-1]
        yield Row(f"killed at every write: {what}", 1, 0, f"it ended with status {running.returncode}: {words}")


def main(what: str, folder: str, every: str) -> None:
    """Try the cases of `stores` or `fits`."""
    from tests.stress.ends import row

    cases = getattr(importlib.import_module(f"tests.stress.{what}"), CASES[what])
    for number, (name, case) in enumerate(cases.items()):
        print(json.dumps(asdict(row(name, case, Path(folder, f"{what}-{number}"), int(every)))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
