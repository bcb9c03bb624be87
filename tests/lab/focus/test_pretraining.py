"""Pretraining with and without groups, tiny: what is read, the control draws anew, stopping, what is refused."""

import json

import pytest

from analysis.errors import BadSetting
from analysis.studies import NAMED
from analysis.studies.context import Context
from lab.focus import pretraining
from tests.made.studied import asker, part_again, studied_home

SIZES = {"length": 32, "windows": 9, "steps": 20, "tokens_per_step": 64, "seeds": 2}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return studied_home(tmp_path_factory.mktemp("pretraining"))


@pytest.fixture
def ask(home, tmp_path, monkeypatch):
    tiny = {"layers": 2, "width": 32, "heads": 2, "kv_heads": 1, "intermediate": 48}
    monkeypatch.setattr(pretraining, "SMALL", tiny)
    given = {"corpus": str(home / "corpus"), "output": str(tmp_path / "p.json")}
    return asker(NAMED["pretraining"], home, **given, **SIZES)


@pytest.mark.slow
def test_three_ways_to_train_at_equal_tokens(ask, home, tmp_path):
    result = ask()
    numbers, stored = result.numbers, json.loads((tmp_path / "p.json").read_text(), parse_constant=pytest.fail)
    assert {c["name"] for c in numbers["columns"]} <= set().union(*numbers["rows"])
    rows = {(row["trained"], row["reading"]): row for row in numbers["rows"]}
    assert {trained for trained, _ in rows} == {"dense", "focus", "random groups"}
    assert ("focus", "trained groups, hard") in rows and ("dense", "k-means groups") in rows and len(rows) == 17
    for (_, reading), row in rows.items():
        assert row["perplexity_lowest"] <= row["perplexity"] <= row["perplexity_highest"]
        assert (row["pairs_share"] == 1) == (reading == "dense" or reading.startswith("soft")), reading
        assert row["against_dense_low"] <= row["against_dense"] <= row["against_dense_high"]
    assert rows["dense", "dense"]["against_dense"] == 0
    firsts = {(c["trained"], c["seed"]): c["loss"] for c in numbers["curves"]}
    assert len(firsts) == 6 == len(set(firsts.values()))
    assert [len(p["x_values"]) for p in numbers["panels"]] == [9, 9, 1, 2]
    assert part_again(NAMED["pretraining"], stored, home)
    again = NAMED["pretraining"].recheck(stored, context=Context(state=home / "state", browser=False))
    assert list(again) == ["dense", "focus", "random groups"]
    assert all(now == pytest.approx(kept, rel=1e-3) for kept, now in again.values())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"rows": "focal"}, "no row 'focal': the rows are dense, focus, random groups"),
        ({"steps": 3}, "at least 4 steps"),
        ({"tokens_per_step": 48}, "must be a multiple of the context"),
    ],
)
def test_what_cannot_be_studied_is_refused(given, said, ask):
    with pytest.raises(BadSetting, match=said):
        ask(**given)
