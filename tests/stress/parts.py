"""Load, faults and hostile input on this machine, bounded and on loopback: the verb `stress`.

It drives the app from outside as a browser does, breaks what it can, and says of each case how often it was tried and
how often it held.
"""

import contextlib
import datetime
import importlib.metadata
import json
import logging
import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from analysis.commandline import commandline
from analysis.errors import AnalysisError, BadSetting
from analysis.files import read_json, write_text
from analysis.runs import Result
from tests.stress.outside import prepared, untouched
from tests.stress.rows import Row, markdown

PARTS = ("load", "faults", "kills", "validators", "pages", "chromium")
MOST = {
    "sessions": 200,
    "seconds": 3600,
    "arrive": 3600,
    "after": 3600,
    "validators": 1_000_000,
    "pages": 100_000,
    "chromium": 10_000,
}
LEAST = {"arrive": 0, "after": 0}  # of the others 1
APP = 6  # of so many inputs to validators, one goes to what the app itself judges


def stress(
    parts: list[str] | None = None,
    sessions: int = 60,
    arrive: float = 120.0,
    seconds: float = 600.0,
    every: float = 20.0,
    after: float = 300.0,
    validators: int = 9000,
    pages: int = 900,
    chromium: int = 100,
    seed: int = 0,
    output: str | None = None,
    *,
    progress: Callable[[float, str], None] = lambda fraction, stage: None,
) -> Result:
    """Run the parts (all unless named) with real processes on a state folder that is thrown away afterwards.

    `sessions` readers come within `arrive` seconds and stay for `seconds`, each with one interaction each `every`
    seconds, while a training runs; `after` seconds after they left the memory is read. Every fault once; stores,
    imports, fits and trainings are killed at every write. `validators`, `pages` and `chromium`: hostile inputs into
    what judges input, into pages in-process, in a browser.

    numbers: `rows` (`case tried held holds said date`), `load` (the measured numbers), `sentence`. `output`: FILE.json,
    with the table as FILE.md beside it; rows of an earlier one whose cases were not tried now stay. Errors: BadSetting.
    """
    counts = {"sessions": sessions, "arrive": arrive, "seconds": seconds, "after": after}
    counts |= {"validators": validators, "pages": pages, "chromium": chromium}
    _check(parts or PARTS, counts, every)
    chosen, rows, load = [part for part in PARTS if part in (parts or PARTS)], [], {}
    with tempfile.TemporaryDirectory(prefix="focuscope-stress-") as folder:
        for number, part in enumerate(chosen):
            progress(number / len(chosen), part)
            try:
                for row in _part(part, Path(folder, part), counts, every, seed, load):
                    rows.append(row.plain(hidden=folder))
                    progress(number / len(chosen), f"{part}: {row.case}")
            except (AnalysisError, OSError) as error:
                rows.append(Row(f"{part} could not be tried", 1, 0, str(error)).plain())
    command = commandline("stress", {"parts": parts, **counts, "every": every, "seed": seed})
    about = {**counts, "every": every, "seed": seed, "parts": chosen, "command": command, **_machine()}
    numbers = {"rows": [row | {"date": about["date"]} for row in rows], "load": load, "protocol": about}
    numbers = _beside(numbers, read_json(Path(output)) if output else None)
    bad = [row["case"] for row in numbers["rows"] if not row["holds"]]
    every_row = f"{len(numbers['rows'])} cases"
    numbers["sentence"] = f"{len(bad)} of {every_row} do not hold: {bad[0]}." if bad else f"All {every_row} hold."
    if output:
        write_text(Path(output), json.dumps(numbers, indent=1) + "\n")
        write_text(Path(output).with_suffix(".md"), markdown(numbers["rows"]))
    return Result(numbers)


def _beside(numbers: dict, stored: dict | None) -> dict:
    """What was found, beside the rows of an earlier table whose cases were not tried now; their protocols stay too."""
    if stored is None:
        return numbers
    tried, at = {row["case"] for row in numbers["rows"]}, stored["protocol"]["date"]
    others = [{"date": at} | row for row in stored["rows"] if row["case"] not in tried]
    protocols = [stored["protocol"], *stored.get("earlier", ())] if others else []
    load = numbers["load"] or stored.get("load", {})
    return numbers | {"rows": [*others, *numbers["rows"]], "load": load, "earlier": protocols}


def _check(parts: list[str], counts: dict, every: float) -> None:
    if strange := [part for part in parts if part not in PARTS]:
        raise BadSetting(f"{strange[0][:40]!r} is no part of the stress test: choose from {', '.join(PARTS)}.")
    for name, value in counts.items():
        least = LEAST.get(name, 1)
        if not least <= value <= MOST[name]:
            raise BadSetting(f"{name} is {value:,} and must lie between {least} and {MOST[name]:,}.")
    if not 0.1 <= every <= 600:
        raise BadSetting(f"The pause between interactions is {every:g} s and must lie between 0.1 and 600.")


def _part(part: str, folder: Path, counts: dict, every: float, seed: int, load: dict) -> Iterator[Row]:
    if part == "faults":
        from tests.stress.faults import broken
        from tests.stress.real import scene

        yield from broken(lambda name: scene(folder / name.replace(" ", "-")))
        return
    folder.mkdir(parents=True, exist_ok=True)
    if part == "kills":
        from tests.stress.kills import CASES, tried

        for what in CASES:
            yield from tried(what, folder)
        return
    if part == "load":
        from tests.stress.load import Scenario, measure
        from tests.stress.server import served

        asked = {name: counts[name] for name in ("sessions", "arrive", "seconds", "after")}
        with served(folder, OMP_NUM_THREADS="1") as server:
            rows, measured = measure(server, Scenario(**asked, every=every, seed=seed))
            load.update(measured)
            yield from [*rows, server.quiet(part)]
        return
    before, count = prepared(folder), counts[part]
    yield from HOSTILE[part](folder, count, seed)
    yield untouched(folder, before, part, count)


def _validators(folder: Path, count: int, seed: int) -> Iterator[Row]:
    """Straight into what judges input, in the analysis and in the app."""
    from tests.stress import judges, validators

    yield from validators.tried(count - count // APP, folder, seed)
    if count >= APP:
        yield from judges.tried(count // APP, seed)


def _pages(folder: Path, count: int, seed: int) -> Iterator[Row]:
    """Into the pages, in this process; their worker and their store are told by the environment where they live."""
    from tests.stress.pages import tried

    logging.getLogger("streamlit").setLevel(logging.ERROR)  # outside a server it warns at every run of a page
    with _environment(FOCUSCOPE_STATE=str(folder / "state"), HF_HUB_OFFLINE="1"):
        yield from tried(count, seed)


def _chromium(folder: Path, count: int, seed: int) -> Iterator[Row]:
    """In a browser, on the app in a process of its own."""
    from tests.stress.chromium import tried
    from tests.stress.server import served

    with served(folder) as server:
        yield from tried(server.address, count, seed)
        yield server.quiet("chromium")


HOSTILE = {"validators": _validators, "pages": _pages, "chromium": _chromium}


@contextlib.contextmanager
def _environment(**variables: str) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _machine() -> dict:
    return {
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "versions": {name: importlib.metadata.version(name) for name in ("streamlit", "torch")},
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
