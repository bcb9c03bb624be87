"""What the worker offers, kept beside the program: pages build their controls from it before a worker has started."""

import hashlib
from pathlib import Path
from typing import Any

from analysis.files import read_json, write_json

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / "methods" / "described.json"


def kept() -> dict[str, Any] | None:
    """The last description that was kept; None where the methods or the verbs were changed since."""
    found = read_json(PLACE)
    return found["described"] if found and found.get("sources") == sources() else None


def keep(described: dict[str, Any]) -> None:
    """Keep what the worker says of itself, with a fingerprint of the sources that it follows from."""
    write_json(PLACE, {"sources": sources(), "described": described})


def sources() -> str:
    """Twelve digits that name the files in which methods and verbs are written."""
    read = hashlib.sha256()
    named = (ROOT / "studies" / name for name in ("registry.py", "verbs.csv"))
    for path in (*sorted(ROOT.glob("methods/*.py")), *named):
        read.update(path.read_bytes().replace(b"\r\n", b"\n"))
    return read.hexdigest()[:12]
