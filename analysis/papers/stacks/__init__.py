"""Which serving stacks run a rung of the deployability ladder, in the words of their own documentation."""

import csv
from dataclasses import dataclass
from pathlib import Path

# When all of it was looked up.
READ = "2026-11-27"
NOWHERE = f"not documented, looked up {READ}"


@dataclass(frozen=True)
class Says:
    """What a stack's documentation says of a rung: its sentence, its address, and its version or month. `bits` is
    every key in fewer bits; the other rungs are those of `study equal-bytes`."""

    stack: str
    rung: str
    runs: bool
    sentence: str
    source: str
    dated: str


def documented() -> list[Says]:
    """All that was found, stack by stack."""
    with Path(__file__).with_name("rungs.csv").open(encoding="utf-8", newline="") as lines:
        return [Says(**(row | {"runs": row["runs"] == "yes"})) for row in csv.DictReader(lines)]


def runs_on(rung: str) -> str:
    """The stacks that are documented to run a rung, each with its version; or that none is."""
    able = [f"{says.stack} ({says.dated})" for says in documented() if says.rung == rung and says.runs]
    return ", ".join(able) or NOWHERE
