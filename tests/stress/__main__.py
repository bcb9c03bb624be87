"""`python -m tests.stress PART FOLDER SEED COUNT...`: one part of `stress`, with the store in FOLDER/state.

judges, pages and chromium take how many inputs, load takes sessions, seconds and the pause between two interactions.
The last line of standard output is one JSON object: `rows`, and `load` with what was measured, or `error`.
"""

import json
import os
import sys
from pathlib import Path

from analysis.errors import AnalysisError
from tests.stress.rows import Row


def judges(folder: Path, seed: int, count: str) -> tuple[list[Row], dict]:
    """Hostile input into what the app itself judges."""
    from tests.stress.judges import tried

    return tried(int(count), seed), {}


def pages(folder: Path, seed: int, count: str) -> tuple[list[Row], dict]:
    """Hostile input into the pages, in this process."""
    from tests.stress.pages import tried

    return tried(int(count), seed), {}


def chromium(folder: Path, seed: int, count: str) -> tuple[list[Row], dict]:
    """Hostile input in a browser, on the app in a process of its own."""
    from tests.stress.chromium import tried
    from tests.stress.server import served

    with served(folder) as server:
        rows = tried(server.address, int(count), seed)
        return [*rows, server.quiet("chromium")], {}


def load(folder: Path, seed: int, sessions: str, seconds: str, every: str) -> tuple[list[Row], dict]:
    """Many readers on the app in a process of its own."""
    from tests.stress.load import measure
    from tests.stress.server import served

    with served(folder) as server:
        rows, numbers = measure(server, int(sessions), float(seconds), float(every), seed)
        return [*rows, server.quiet("load")], numbers


PARTS = {"judges": judges, "pages": pages, "chromium": chromium, "load": load}


def main(part: str, folder: str, seed: str, *counts: str) -> dict:
    """What the last line says."""
    os.environ |= {"FOCUSCOPE_STATE": str(Path(folder, "state")), "HF_HUB_OFFLINE": "1"}
    try:
        rows, measured = PARTS[part](Path(folder), int(seed), *counts)
    except (AnalysisError, OSError) as error:
        return {"error": str(error)}
    return {"rows": [vars(row) for row in rows], "load": measured}


if __name__ == "__main__":
    print("\n" + json.dumps(main(*sys.argv[1:])))
