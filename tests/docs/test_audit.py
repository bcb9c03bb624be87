"""docs/audit.md: its counts, what its rows name, and its sizes, held against the program and what is stored."""

import json
import re
from collections import Counter

import pytest

from analysis.commands import COMMANDS
from tests.conftest import ROOT

TEXT = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
CELLS = [[cell.strip() for cell in line.strip("|").split("|")] for line in TEXT.splitlines() if line.startswith("| ")]
NAMES = ("row", "what", "status", "where", "size", "hours", "note")
ROWS = [dict(zip(NAMES, cells, strict=True)) for cells in CELLS if cells[0] != "row"]
STATES = ("full", "toy", "partial", "missing", "wrong")
# Number in a size -> what the protocol of a study calls it.
SIZES = {r"(\d+) steps": "steps", r"(\d+) training": "seeds", r"(\d+) documents": "units"}


def protocols(row):
    folder = ROOT / "models_cache" / "demo" / "studies"
    names = re.findall(r"\*([a-z0-9-]+)\*", row["where"])
    return [json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))["protocol"] for name in names]


def test_the_counts_are_those_of_the_rows():
    found = Counter(row["status"] for row in ROWS)
    assert len({row["row"] for row in ROWS}) == len(ROWS) == 121 and set(found) <= set(STATES)
    told = {state: int(number) for number, state in re.findall(rf"(\d+) ({'|'.join(STATES)})\b", TEXT.split("\n- ")[0])}
    assert told == {state: found[state] for state in STATES} and told["wrong"] == 0


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["row"])
def test_what_a_row_names_is_there(row):
    for named in re.findall(r"`([^`]+)`", row["where"]):
        assert named in COMMANDS or (ROOT / named).exists(), named
    stored = protocols(row)
    if row["status"] == "toy":
        assert stored and row["size"], "a toy row says its size"
    else:
        assert not row["size"] and (row["note"] or row["status"] == "full")
    assert bool(row["hours"]) == (row["status"] in ("toy", "partial")), "what it would take"
    for pattern, name in SIZES.items():
        for number in re.findall(pattern, row["size"]):
            # An adapted model trains an eighth of the steps.
            assert int(number) in [said for one in stored for said in (one.get(name), one.get(name, 0) // 8)]
