"""Pretraining with and without groups, tiny: what is read, the control draws anew, stopping, what is refused."""

import json

import pytest

from analysis.errors import BadSetting, Cancelled
from analysis.studies import NAMED
from analysis.studies.context import Context
from analysis.studies.grids import pretraining
from analysis.studies.grids.pretraining import recheck
from analysis.training import pretrain
from tests.made.studied import asker, studied_home

SIZES = {"length": 32, "windows": 9, "steps": 20, "tokens_per_step": 64}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return studied_home(tmp_path_factory.mktemp("pretraining"))


@pytest.fixture
def ask(home, tmp_path, monkeypatch):
    tiny = {"layers": 2, "width": 32, "heads": 2, "kv_heads": 1, "intermediate": 48}
    monkeypatch.setattr(pretraining, "SMALL", tiny)
    given = {"corpus": str(home / "corpus"), "output": str(tmp_path / "p.json")}
    return asker(NAMED["pretraining"], home, **given, **SIZES)


def test_three_ways_to_train_at_equal_tokens(ask, home, tmp_path):
    result = ask()
    numbers, stored = result.numbers, json.loads((tmp_path / "p.json").read_text(), parse_constant=pytest.fail)
    assert numbers.pop("path") == str(tmp_path / "p.json") and {key: stored[key] for key in numbers} == numbers
    assert {c["name"] for c in numbers["columns"]} <= set().union(*numbers["rows"])
    rows = {(row["trained"], row["reading"]): row for row in numbers["rows"]}
    assert {trained for trained, _ in rows} == {"dense", "focus", "random groups"}
    assert ("focus", "trained groups, hard") in rows and ("dense", "k-means groups") in rows and len(rows) == 17
    for (_, reading), row in rows.items():
        assert min(row["first"], row["second"]) <= row["perplexity"] <= max(row["first"], row["second"])
        assert (row["pairs_share"] == 1) == (reading == "dense" or reading.startswith("soft")), reading
        assert row["against_dense_low"] <= row["against_dense"] <= row["against_dense_high"]
    assert rows["dense", "dense"]["against_dense"] == 0
    firsts = {(c["trained"], c["seed"]): c["loss"] for c in numbers["curves"]}
    assert len(firsts) == 6 == len(set(firsts.values()))
    assert [len(p["x_values"]) for p in numbers["panels"]] == [9, 9, 1, 2]
    again = recheck(stored, context=Context(state=home / "state", browser=False))
    assert list(again) == ["dense", "focus", "random groups"]
    assert all(now == pytest.approx(kept, rel=1e-3) for kept, now in again.values())


def test_a_stopped_study_goes_on_and_ends_the_same(ask, tmp_path, monkeypatch):
    whole = ask(rows="random groups", steps=40, work=str(tmp_path / "a")).numbers
    real = pretrain.save_checkpoint
    monkeypatch.setattr(pretraining, "KEPT_EVERY", 0.0)

    def stop(fraction, stage):
        if stage == "random groups, seed 1, training" and fraction > 0.7:
            raise Cancelled("enough")

    with pytest.raises(Cancelled):
        ask(stop, rows="random groups", steps=40, work=str(tmp_path / "b"))
    steps = []
    monkeypatch.setattr(
        pretrain, "save_checkpoint", lambda *a, step, **k: (steps.append(step), real(*a, step=step, **k))
    )
    again = ask(rows="random groups", steps=40, work=str(tmp_path / "b")).numbers
    assert again["rows"] == whole["rows"] and steps[0] == 20 and 40 in steps, "the first seed was done"
    assert again["sentence"].startswith("Without dense training")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"corpus": ""}, "needs a corpus"),
        ({"rows": "focal"}, "no row 'focal': the rows are dense, focus, random groups"),
        ({"steps": 3}, "at least 4 steps"),
        ({"tokens_per_step": 48}, "must be a multiple of the context"),
        ({"length": 8}, "A window of text is 8"),
    ],
)
def test_what_cannot_be_studied_is_refused(given, said, ask):
    with pytest.raises(BadSetting, match=said):
        ask(**given)
