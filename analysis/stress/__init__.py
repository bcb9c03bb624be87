"""Load, faults and hostile input on this machine, bounded and on loopback: the verb `stress`.

It drives the app from outside as a browser does, breaks what it can, and says of each case how often it was tried and
how often it held.
"""

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from analysis.errors import AnalysisError, BadSetting
from analysis.runs import Result
from analysis.stress.rows import Row, markdown

PARTS = ("load", "faults", "validators", "pages", "chromium")
MOST = {"sessions": 200, "seconds": 3600, "validators": 1_000_000, "pages": 100_000, "chromium": 10_000}
PROJECT = Path(__file__).resolve().parents[2]


def stress(
    parts: list[str] | None = None,
    sessions: int = 50,
    seconds: float = 120.0,
    every: float = 10.0,
    validators: int = 9000,
    pages: int = 900,
    chromium: int = 100,
    seed: int = 0,
    output: str | None = None,
    *,
    progress: Callable[[float, str], None] = lambda fraction, stage: None,
) -> Result:
    """Run the parts (all unless named) with real processes on a state folder that is thrown away afterwards.

    `sessions` readers for `seconds`, one interaction each `every` seconds, while a training runs; every fault once;
    `validators`, `pages` and `chromium`: hostile inputs into what judges input, into pages in-process, in a browser.
    numbers: `rows` (`case tried held holds said`), `load` (the measured numbers), `sentence`. `output`: FILE.json, with
    the table as FILE.md beside it. Errors: BadSetting.
    """
    counts = {"sessions": sessions, "seconds": seconds, "validators": validators, "pages": pages, "chromium": chromium}
    _check(parts or PARTS, counts, every)
    chosen, rows, load = [part for part in PARTS if part in (parts or PARTS)], [], {}
    with tempfile.TemporaryDirectory(prefix="focuscope-stress-") as folder:
        for number, part in enumerate(chosen):
            progress(number / len(chosen), part)
            try:
                for row in _part(part, Path(folder), counts, every, seed, load):
                    rows.append(row.plain())
                    progress(number / len(chosen), f"{part}: {row.case}")
            except (AnalysisError, OSError) as error:
                rows.append(Row(f"{part} could not be tried", 1, 0, str(error)).plain())
    bad = [row["case"] for row in rows if not row["holds"]]
    said = f"All {len(rows)} cases hold." if not bad else f"{len(bad)} of {len(rows)} cases do not hold: {bad[0]}."
    about = {**counts, "every": every, "seed": seed, "parts": chosen, **_machine()}
    numbers = {"rows": rows, "load": load, "sentence": said, "protocol": about}
    if output:
        path = Path(output)
        path.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
        path.with_suffix(".md").write_text(markdown(rows), encoding="utf-8")
    return Result(numbers)


def _check(parts: list[str], counts: dict, every: float) -> None:
    if strange := [part for part in parts if part not in PARTS]:
        raise BadSetting(f"{strange[0][:40]!r} is no part of the stress test: choose from {', '.join(PARTS)}.")
    for name, value in counts.items():
        if not 1 <= value <= MOST[name]:
            raise BadSetting(f"{name} is {value:,} and must lie between 1 and {MOST[name]:,}.")
    if not 0.1 <= every <= 600:
        raise BadSetting(f"The pause between interactions is {every:g} s and must lie between 0.1 and 600.")


def _part(part: str, folder: Path, counts: dict, every: float, seed: int, load: dict) -> Iterator[Row]:
    if part == "validators":
        from analysis.stress.validators import tried

        yield from tried(counts["validators"], folder / part, seed)
    elif part == "faults":
        from analysis.stress.faults import broken
        from analysis.stress.real import scene

        yield from broken(lambda name: scene(folder / part / name.replace(" ", "-")))
    elif part == "pages":
        yield from _pages(folder / part, counts["pages"], seed)
    else:
        from analysis.stress.server import served

        with served(folder / part) as server:
            if part == "load":
                from analysis.stress.load import measure

                rows, numbers = measure(server, counts["sessions"], counts["seconds"], every, seed)
                load.update(numbers)
            else:
                from analysis.stress.chromium import tried

                rows = tried(server, counts["chromium"], seed)
            yield from rows
            errors = server.log.count("Traceback")
            yield Row(f"the app's own log after {part}", 1, int(not errors), f"{errors} tracebacks" if errors else "")


def _pages(folder: Path, count: int, seed: int) -> list[Row]:
    """In a process of its own: its store and its worker are found by its environment."""
    environment = {**os.environ, "FOCUSCOPE_STATE": str(folder), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "analysis.stress.pages", str(count), str(seed)]
    done = subprocess.run(command, cwd=PROJECT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if done.returncode:
        raise AnalysisError(f"The pages could not be tried (status {done.returncode}): run {' '.join(command[1:])}.")
    return [Row(**row) for row in json.loads(done.stdout.decode().strip().rsplit("\n", 1)[-1])]


def _machine() -> dict:
    return {
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "versions": {name: importlib.metadata.version(name) for name in ("streamlit", "torch")},
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
