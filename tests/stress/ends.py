"""A program that ends at a change of the disk, as kill -9 ends it: nothing of it runs afterwards, no `finally` either.

All changes pass `analysis.files.change`, so they can be counted, and a forked child can end at each of them. A child
does all the work: whoever forks computes nothing and has no thread that a child would miss.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas  # noqa: F401  # loaded once here and not in every child, like the next two
import pyarrow.parquet  # noqa: F401
import safetensors.numpy  # noqa: F401

from analysis import files
from tests.stress.rows import Row

KILLED = 9
NEVER = 1 << 40


@dataclass(frozen=True)
class Case:
    """`prepare(root)` makes what stands before, `act(root)` is what ends early, `check(root)` holds that nothing that
    stood before is lost and that there is no half of anything; all in processes of their own."""

    prepare: Callable[[Path], object]
    act: Callable[[Path], object]
    check: Callable[[Path], object]


def apart(act: Callable[[], object]) -> tuple[int, str]:
    """The exit status of a child that runs `act`, and what that gave, or the error's words."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status, said = 0, ""
        try:
            said = str(act())
        except BaseException as error:
            status, said = 1, f"{type(error).__name__}: {error}"
        os.write(writing, said.encode()[:4000])
        os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


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


def kills(case: Case, folder: Path, every: int = 1) -> Iterator[str | None]:
    """For each end of a case, or each of so many: None when all held, else what did not."""
    base, root = folder / "base", folder / "state"
    base.mkdir(parents=True)
    _held(apart(lambda: case.prepare(base)))
    _again(base, root)
    count = int(_held(apart(lambda: until(case.act, root, NEVER))))
    _held(apart(lambda: case.check(root)))
    for change in range(0, count, every):
        _again(base, root)
        status, said = apart(lambda change=change: until(case.act, root, change))
        if status != KILLED:
            yield f"change {change} of {count} was not reached: {said}"
            continue
        status, said = apart(lambda: case.check(root))
        yield None if status == 0 else f"after change {change} of {count}: {said}"


def row(name: str, case: Case, folder: Path, every: int = 1) -> Row:
    """One line of the table: ends tried, and after how many of them nothing was lost and no half stood."""
    found = list(kills(case, folder, every))
    wrong = [said for said in found if said]
    said = wrong[0] if wrong else "what stood before is whole, what was under way is whole or not there"
    return Row(f"killed at every write: {name}", len(found), len(found) - len(wrong), said)


def _held(done: tuple[int, str]) -> str:
    status, said = done
    if status:
        raise RuntimeError(f"without any end: {said}")
    return said


def _again(base: Path, root: Path) -> None:
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(base, root)
