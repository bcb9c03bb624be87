"""How many runs are kept, and how much of the disk they may take."""

from dataclasses import dataclass
from pathlib import Path

from ..errors import BadSetting
from ..files import read_json, write_json
from .shelf import room

FILE = "retention.json"
# Beyond either the oldest runs go, pinned ones never.
KEPT_RUNS, KEPT_BYTES = 500, 2_000_000_000
MOST_RUNS, MOST_BYTES = 100_000, 10**13
# A deleted run can be brought back for so long.
KEPT_DAYS = 7


@dataclass(frozen=True)
class Usage:
    """What lies on the disk."""

    runs: int
    bytes: int
    pinned: int  # of the runs
    pinned_bytes: int
    deleted: int  # runs that can come back
    deleted_bytes: int
    texts: int
    text_bytes: int
    # So many of the runs computed here stay that are not pinned, and as many that came in bundles.
    kept_runs: int
    kept_bytes: int


def limits(root: Path) -> tuple[int, int]:
    """(runs, bytes) that are kept; the defaults while nobody chose others, or when what was chosen cannot be read."""
    chosen = read_json(root / FILE) or {}
    return chosen.get("runs", KEPT_RUNS), chosen.get("bytes", KEPT_BYTES)


def choose_limits(root: Path, runs: object, size: object) -> None:
    """Keep so many `runs` and `size` bytes from now on; BadSetting for what is no such number."""
    for value, most, what in ((runs, MOST_RUNS, "runs"), (size, MOST_BYTES, "bytes")):
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            raise BadSetting(f"{str(value)[:40]!r} is no number of {what} to keep: choose 1 to {most:,}.")
    with room(root):
        write_json(root / FILE, {"runs": runs, "bytes": size})
