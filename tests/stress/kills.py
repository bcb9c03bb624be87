"""Stores, imports, fits and trainings that end at a change of the disk, as kill -9 ends them: nothing of them runs
afterwards, no `finally` either. All changes pass `analysis.files.change`, so they can be counted, and a forked child
ends at each of them, or at one of EVERY: `python -m tests.stress.kills WHAT FOLDER EVERY` prints a line of JSON for
each case of WHAT. A child does all the work: whoever forks computes nothing and has no thread that a child would miss.
"""

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas  # noqa: F401  # loaded once here and not in every child, like the next two
import pyarrow.parquet  # noqa: F401
import safetensors.numpy  # noqa: F401

from analysis import files
from tests.stress.rows import Row
from tests.stress.scene import PROJECT

CASES = {"stores": "STORE", "fits": "FITS"}
KILLED = 9
NEVER = 1 << 40


@dataclass(frozen=True)
class Case:
    """Three steps, all in processes of their own."""

    prepare: Callable[[Path], object]  # makes what stands before
    act: Callable[[Path], object]  # ends early
    check: Callable[
        [Path], object
        # Holds that nothing that stood before is lost and that there is no half of anything.
    ]


def tried(module: str, folder: Path, stride: int = 1) -> Iterator[Row]:
    """One row per case, from a process of its own."""
    command = [sys.executable, "-m", "tests.stress.kills", module, str(folder), str(stride)]
    quiet = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with (folder / f"{module}.log").open("w") as log:
        running = subprocess.Popen(command, cwd=PROJECT, env=quiet, stdout=subprocess.PIPE, stderr=log, text=True)
        with running:
            for line in running.stdout or ():
                yield Row(**json.loads(line))
    if running.returncode:
        words = (folder / f"{module}.log").read_text().strip().rsplit("\n", 1)[-1]
        yield Row(f"killed at every write: {module}", 1, 0, f"it ended with status {running.returncode}: {words}")


def row(name: str, case: Case, folder: Path, stride: int = 1) -> Row:
    """One line of the table: ends tried, and after how many of them nothing was lost and no half stood."""
    outcomes = list(kills(case, folder, stride))
    wrong = [outcome for outcome in outcomes if outcome]
    sentence = wrong[0] if wrong else "what stood before is whole, what was under way is whole or not there"
    return Row(f"killed at every write: {name}", len(outcomes), len(outcomes) - len(wrong), sentence)


def kills(case: Case, folder: Path, stride: int = 1) -> Iterator[str]:
    """For each end of a case, or each of so many: nothing when all held, else what did not."""
    base, root = folder / "base", folder / "state"
    base.mkdir(parents=True)

    def again() -> None:
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(base, root)

    def unharmed(act: Callable[[], object]) -> str:
        status, answer = apart(act)
        if status:
            raise RuntimeError(f"without any end: {answer}")
        return answer

    unharmed(lambda: case.prepare(base))
    again()
    count = int(unharmed(lambda: until(case.act, root, NEVER)))
    unharmed(lambda: case.check(root))
    for change in range(0, count, stride):
        again()
        status, answer = apart(lambda change=change: until(case.act, root, change))
        if status != KILLED:
            yield f"change {change} of {count} was not reached: {answer}"
            continue
        status, answer = apart(lambda: case.check(root))
        yield f"after change {change} of {count}: {answer}" if status else ""


def apart(act: Callable[[], object]) -> tuple[int, str]:
    """The exit status of a child that runs `act`, and what that gave, or the error's words."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status, answer = 0, ""
        try:
            answer = str(act())
        except BaseException as error:
            status, answer = 1, f"{type(error).__name__}: {error}"
        os.write(writing, answer.encode()[:4000])
        os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read().decode()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), answer


def until(act: Callable[[Path], object], root: Path, change: int) -> int:
    """Run `act` and end at its change of that number, from 0; how many there were when it is not reached."""
    count = 0

    def watch() -> None:
        nonlocal count
        if count == change:
            os._exit(KILLED)
        count += 1

    files.watching.append(watch)
    act(root)
    return count


def main(module: str, folder: str, stride: str) -> None:
    """Try the cases of `stores` or `fits`."""
    cases = getattr(importlib.import_module(f"tests.stress.{module}"), CASES[module])
    for number, (name, case) in enumerate(cases.items()):
        print(json.dumps(asdict(row(name, case, Path(folder, f"{module}-{number}"), int(stride)))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
