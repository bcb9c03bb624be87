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
SIZES = {r"([\d,]+) steps": "steps", r"([\d,]+) training": "seeds", r"([\d,]+) documents": "units"}


# Grids that were asked for at the size of the bundled model.
ASKED_FOR = {"ablations", "dominance", "finetuning", "baselines", "alignment", "focal-temperatures"}
TRAININGS, WINDOW, STEPS, DOCUMENTS = 3, 128, 600, 16


def studies(row):
    folder = ROOT / "models_cache" / "demo" / "studies"
    names = re.findall(r"\*([a-z0-9-]+)\*", row["where"])
    return {name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in names}


def as_asked(name, study):
    """Whether a stored study is one of those grids, measured with the protocol that was asked of it."""
    protocol, curves = study["protocol"], study.get("curves", [])
    seeds = {point["seed"] for point in curves if "seed" in point}
    repeated = protocol.get("seeds", 0) >= TRAININGS and len(seeds) >= TRAININGS
    if not seeds:  # points that are means over the trainings of a row name none
        with_curve = {point["row"] for point in curves if "row" in point}
        repeated = all(row.get("seeds", 0) >= TRAININGS and row["row"] in with_curve for row in study["rows"])
    window = protocol["sizes"].get("window")
    enough = window is None or (window >= WINDOW and protocol["steps"] >= STEPS and protocol["units"] >= DOCUMENTS)
    return name in ASKED_FOR and repeated and enough


def test_the_counts_are_those_of_the_rows():
    counts = Counter(row["status"] for row in ROWS)
    assert len({row["row"] for row in ROWS}) == len(ROWS) == 121 and set(counts) <= set(STATES)
    text = {state: int(number) for number, state in re.findall(rf"(\d+) ({'|'.join(STATES)})\b", TEXT.split("\n- ")[0])}
    assert text == {state: counts[state] for state in STATES} and text["wrong"] == 0


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["row"])
def test_what_a_row_names_is_there(row):
    for named in re.findall(r"`([^`]+)`", row["where"]):
        assert named in COMMANDS or (ROOT / named).exists(), named
    stored = studies(row)
    if row["status"] == "toy":
        assert stored and row["size"], "a toy row says its size"
    elif row["status"] == "full" and row["size"]:
        assert stored and all(as_asked(*study) for study in stored.items()), "its size is not what was asked for"
    else:
        assert not row["size"] and (row["note"] or row["status"] == "full")
    assert bool(row["hours"]) == (row["status"] in ("toy", "partial")), "what it would take"
    protocols = [study["protocol"] for study in stored.values()]
    for pattern, name in SIZES.items():
        for number in re.findall(pattern, row["size"]):
            # An adapted model trains an eighth of the steps.
            assert int(number.replace(",", "")) in [n for p in protocols for n in (p.get(name), p.get(name, 0) // 8)]


def test_one_training_or_no_curve_is_not_what_was_asked_for():
    assert not any(as_asked(*study) for row in ROWS if "1 training" in row["size"] for study in studies(row).items())
    full = [study for row in ROWS if row["status"] == "full" and row["size"] for study in studies(row).items()]
    for fewer in (0, 1):
        assert full and not any(as_asked(name, study | {"curves": study["curves"][:fewer]}) for name, study in full)
