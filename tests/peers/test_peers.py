"""What peers answered is stored, of the versions that are asked for, and says what must hold."""

import importlib
import json
from datetime import date

import pytest

from tests.peers.__main__ import HERE, OURS, PEERS


def stored(peer: str) -> dict:
    return json.loads((HERE / f"{peer}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("peer", PEERS)
def test_what_is_stored_is_of_the_versions_that_are_asked_for(peer):
    result = stored(peer)
    pinned = dict(line.split("==") for line in (HERE / f"{peer}.txt").read_text().split())
    assert {name: result["versions"][name] for name in pinned} == pinned
    assert set(result["project"]) == set(OURS) and result["command"] == f"python -m tests.peers {peer}"
    assert date.fromisoformat(result["date"]) <= date.today() and result["seconds"] >= 0


@pytest.mark.parametrize("peer", PEERS)
def test_what_must_be_the_same_is(peer):
    rows = stored(peer)["rows"]
    assert len(rows) == len(importlib.import_module(f"tests.peers.of_{peer}").ROWS)
    assert any(row["same"] for row in rows) and len({row["case"] for row in rows}) == len(rows)
    wrong = [row for row in rows if row["same"] and max(row["apart"].values()) > row["most"]]
    assert not wrong, wrong
    alike = [row["case"] for row in rows if not row["same"] and not any(row["apart"].values())]
    assert not alike, f"no longer a difference, though a method's description says so: {alike}"


def test_a_peer_without_an_answer_would_be_noticed():
    answered_for = {path.stem.removeprefix("of_") for path in HERE.glob("of_*.py")}
    assert (
        answered_for
        == set(PEERS)
        == {path.stem for path in HERE.glob("*.txt")}
        == {path.stem for path in HERE.glob("*.json")}
    )
