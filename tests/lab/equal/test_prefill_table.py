"""The table of prompts read by blocks on a tiny model: rounds, shares, the law of skip softmax, what comes again."""

import json

import numpy as np
import pytest

from analysis.errors import BadSetting
from analysis.studies import NAMED
from analysis.studies.context import Context
from lab.equal.prefill import SCALES, law_of
from tests.made.studied import asker, part_again, studied_home


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return studied_home(tmp_path_factory.mktemp("prefill"))


def test_the_law_of_the_scale_by_hand():
    """scale = 2 exp(5 s) at three shares; a share that saturates is left out, one point is no law."""
    points = [{"scale": 2 * np.exp(5 * s), "skipped": s} for s in (0.2, 0.5, 0.8)]
    found = law_of([*points, {"scale": 1e4, "skipped": 1.0}])
    assert found == pytest.approx({"a": 2.0, "b": 5.0, "error": 1.0})
    assert law_of(points[:1]) is None


def test_rules_by_length(home, tmp_path):
    given = {"corpus": str(home / "corpus"), "output": str(tmp_path / "p.json")}
    ask = asker(NAMED["prefill"], home, **given, lengths="32,48", windows=3, continuation=8)
    numbers = ask(rows="skip_softmax,flex_prefill").numbers
    rows = numbers["rows"]
    assert [(row["method"], row["length"]) for row in rows] == [
        (name, length) for length in (32, 48) for name in ("skip_softmax", "flex_prefill")
    ]
    for row in rows:
        assert row["read"] == 1 and row["against_dense"] == pytest.approx(0, abs=1e-5)  # one block of 128
        assert 0 < row["speedup_low"] <= row["speedup"] <= row["speedup_high"] and row["prompt_ms"] > 0
    assert [(one["length"], one["scale"]) for one in numbers["calibration"]] == [
        (n, s) for n in (32, 48) for s in SCALES
    ]
    assert numbers["law"] is None and {column["name"] for column in numbers["columns"]} <= set(rows[0])
    assert [panel["title"] for panel in numbers["panels"]][:2] == ["Speed of the prompt", "Blocks skipped"]
    assert "--lengths 32,48" in numbers["protocol"]["command"] and "faster than dense attention" in numbers["sentence"]
    stored = json.loads((tmp_path / "p.json").read_text(), parse_constant=pytest.fail)
    assert part_again(NAMED["prefill"], stored, home)
    again = NAMED["prefill"].recheck(stored, context=Context(state=home / "state", browser=False))
    assert again["xattention"][0] == pytest.approx(again["xattention"][1], rel=1e-6) and 0 < again["read"][1] < 1
    with pytest.raises(BadSetting, match="There is no rule 'best'"):
        ask(rows="best")
    with pytest.raises(BadSetting, match="is no list of lengths"):
        ask(lengths="many")
