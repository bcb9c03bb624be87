"""Load, faults and hostile input on this machine, bounded and on loopback: the verb `stress`.

It drives the app from outside as a browser does, breaks what it can, and says of each case how often it was tried and
how often it held.
"""

import datetime
import importlib.metadata
import json
import logging
import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

from analysis.commands.runs import Stress
from analysis.errors import AnalysisError
from analysis.files import read_json, write_text
from analysis.runs import Result
from tests.stress.rows import Row, markdown, prepared, untouched


def stress(request: Stress, *, progress: Callable[[float, str], None] = lambda fraction, stage: None) -> Result:
    """Run the parts (all unless named) with real processes on a state folder that is thrown away afterwards.

    `sessions` readers come within `arrive` seconds and stay for `seconds`, each with one interaction each `every`
    seconds, while a training runs; `after` seconds after they left the memory is read. Every fault once; stores,
    imports, fits and trainings are killed at every write. `validators`, `pages` and `chromium`: hostile inputs into
    what judges input, into pages in-process, in a browser.

    numbers: `rows` (`case tried held holds said date`), `load` (the measured numbers), `sentence`. `output`: FILE.json,
    with the table as FILE.md beside it; rows of an earlier one whose cases were not tried now stay.
    """
    chosen = [part for part in PARTS if part in (request.parts or PARTS)]
    rows: list[dict] = []
    load: dict = {}
    with tempfile.TemporaryDirectory(prefix="focuscope-stress-") as folder:
        for number, part in enumerate(chosen):
            progress(number / len(chosen), part)
            place = Path(folder, part)
            place.mkdir()
            try:
                for row in PARTS[part](place, request, load):
                    rows.append(row.plain(hidden=folder))
                    progress(number / len(chosen), f"{part}: {row.case}")
            except (AnalysisError, OSError) as error:
                rows.append(Row(f"{part} could not be tried", 1, 0, str(error)).plain())
    about = request.arguments | {"parts": chosen, "command": request.command_line(), **_machine()}
    del about["output"]
    numbers = {"rows": [row | {"date": about["date"]} for row in rows], "load": load, "protocol": about}
    numbers = _beside(numbers, read_json(Path(request.output)) if request.output else None)
    bad = [row["case"] for row in numbers["rows"] if not row["holds"]]
    cases = f"{len(numbers['rows'])} cases"
    numbers["sentence"] = f"{len(bad)} of {cases} do not hold: {bad[0]}." if bad else f"All {cases} hold."
    if request.output:
        write_text(Path(request.output), json.dumps(numbers, indent=1) + "\n")
        write_text(Path(request.output).with_suffix(".md"), markdown(numbers["rows"]))
    return Result(numbers)


def _beside(numbers: dict, stored: dict | None) -> dict:
    """What was found, beside the rows of an earlier table whose cases were not tried now; their protocols stay too."""
    if stored is None:
        return numbers
    tried, date = {row["case"] for row in numbers["rows"]}, stored["protocol"]["date"]
    earlier = [{"date": date} | row for row in stored["rows"] if row["case"] not in tried]
    protocols = [stored["protocol"], *stored.get("earlier", ())] if earlier else []
    load = numbers["load"] or stored.get("load", {})
    return numbers | {"rows": [*earlier, *numbers["rows"]], "load": load, "earlier": protocols}


def _load(folder: Path, request: Stress, load: dict) -> Iterator[Row]:
    from tests.stress.load import measure
    from tests.stress.server import served

    with served(folder, OMP_NUM_THREADS="1") as server:
        rows, measured = measure(server, request)
        load.update(measured)
        yield from [*rows, server.quiet("load")]


def _faults(folder: Path, request: Stress, load: dict) -> Iterator[Row]:
    from tests.stress.faults import broken
    from tests.stress.scene import real

    yield from broken(lambda name: real(folder / name.replace(" ", "-")))


def _kills(folder: Path, request: Stress, load: dict) -> Iterator[Row]:
    from tests.stress.kills import CASES, tried

    for part in CASES:
        yield from tried(part, folder)


def _validators(folder: Path, request: Stress, load: dict) -> Iterator[Row]:
    from tests.stress.validators import tried

    before = prepared(folder)
    yield from tried(request.validators, folder, request.seed)
    yield untouched(folder, before, "validators", request.validators)


def _pages(folder: Path, request: Stress, load: dict) -> Iterator[Row]:
    """In this process; the worker and the store of the pages are told by the environment where they live."""
    from tests.stress.inputs import in_process

    # Outside a server it warns at every run of a page.
    logging.getLogger("streamlit").setLevel(logging.ERROR)
    before = prepared(folder)
    with patch.dict(os.environ, FOCUSCOPE_STATE=str(folder / "state"), HF_HUB_OFFLINE="1"):
        yield from in_process(request.pages, request.seed)
    yield untouched(folder, before, "pages", request.pages)


def _chromium(folder: Path, request: Stress, load: dict) -> Iterator[Row]:
    """In a browser, on the app in a process of its own."""
    from tests.stress.in_tabs import in_chromium
    from tests.stress.server import served

    before = prepared(folder)
    with served(folder) as server:
        yield from in_chromium(server.address, request.chromium, request.seed)
        yield server.quiet("chromium")
    yield untouched(folder, before, "chromium", request.chromium)


PARTS: dict[str, Callable[[Path, Stress, dict], Iterator[Row]]] = {
    "load": _load,
    "faults": _faults,
    "kills": _kills,
    "validators": _validators,
    "pages": _pages,
    "chromium": _chromium,
}


def _machine() -> dict:
    return {
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "versions": {name: importlib.metadata.version(name) for name in ("streamlit", "torch")},
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
