"""The table of eviction rules on a tiny model: rows, budgets, what comes again, what is refused."""

import json

import pytest

from analysis.errors import BadSetting
from analysis.studies import NAMED
from analysis.studies.context import Context
from lab.equal.eviction import RATIOS
from tests.made.studied import asker, part_again, studied_home


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return studied_home(tmp_path_factory.mktemp("eviction"))


def test_rules_by_what_they_remove(home, tmp_path):
    given = {"corpus": str(home / "corpus"), "output": str(tmp_path / "e.json")}
    ask = asker(NAMED["eviction"], home, **given, length=48, windows=6, continuation=16)
    numbers = ask(rows="tova,keydiff").numbers
    rows = numbers["rows"]
    assert [(row["method"], row["ratio"]) for row in rows] == [(n, r) for n in ("tova", "keydiff") for r in RATIOS]
    for row in rows:
        assert row["kept_keys"] == int(32 * (1 - row["ratio"])) and row["kv_share"] == row["kept_keys"] / 32
    assert {column["name"] for column in numbers["columns"]} <= set(rows[0])
    (drawn,) = numbers["panels"]
    assert drawn["x_values"] == list(RATIOS) and [line["name"] for line in drawn["series"]] == ["TOVA", "KeyDiff"]
    assert (
        "remove 90%: the lowest of 2 rules" in numbers["sentence"]
        and "--rows tova,keydiff" in numbers["protocol"]["command"]
    )
    stored = json.loads((tmp_path / "e.json").read_text(), parse_constant=pytest.fail)
    assert part_again(NAMED["eviction"], stored, home)
    again = NAMED["eviction"].recheck(stored, context=Context(state=home / "state", browser=False))
    assert again["snapkv"][0] == pytest.approx(again["snapkv"][1], rel=1e-6)
    with pytest.raises(BadSetting, match="There is no rule 'best'"):
        ask(rows="best")
    with pytest.raises(BadSetting, match="The length of the continuation is 41"):
        ask(continuation=41)
