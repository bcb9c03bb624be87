"""The study of how keys are shared out, on a tiny model: as many keys in each arm, what is chosen, what is said."""

import json

import numpy as np
import pytest

from analysis.errors import BadSetting
from analysis.studies.context import Context
from lab.budgets import allocation as studied
from tests.made.studied import asker, part_again, studied_home


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return studied_home(tmp_path_factory.mktemp("allocation"))


def test_keys_by_hand():
    values = np.array([[1.0, 0.0], [0.0, 3.0]])
    assert studied._budgets(values, 10, 0.5).tolist() == [[10, 5], [5, 20]], "5 to each, 20 by their values"
    assert studied._budgets(values, 10, 0.0).tolist() == [[10, 2], [2, 26]], "2 to each at least, 32 by their values"
    assert studied._budgets(np.ones((2, 2)), 10, 1.0).tolist() == [[10, 10], [10, 10]]


def test_as_many_keys_in_each_arm_and_the_selection_texts_choose(home, tmp_path, monkeypatch):
    monkeypatch.setattr(studied, "KEYS", (4, 12))
    monkeypatch.setattr(studied, "EVENLY", (0.0, 0.5))
    given = {"corpus": str(home / "corpus"), "output": str(tmp_path / "a.json"), "length": 48}
    ask = asker(studied.allocation, home, **given, calibrate=2, select=2)
    made = ask(windows=6).numbers
    rows = made["rows"]
    assert [(row["keys"], row["arm"]) for row in rows] == [(keys, arm) for keys in (4, 12) for arm in studied.ARMS]
    heads = np.size(made["shared"]["ranks"])
    for row in rows:
        assert row["total"] == heads * row["keys"] >= heads * row["attended"] > 0
        assert row["reads_causal"] <= row["reads_kv_least"] <= row["reads_kv_most"] <= 1
        tried = [one for one in made["tried"] if (one["keys"], one["arm"]) == (row["keys"], row["arm"])]
        assert len(tried) == {studied.EVEN: 0, studied.RANKS: 2, studied.ABLATION: 4}[row["arm"]]
        if tried:
            best = min(tried, key=lambda one: one["loss"])
            assert (row["by"], row["evenly"]) == (best["by"], best["evenly"])
        apart = {name for name in ("dense", "even", "ranks") if f"against_{name}" in row}
        assert apart == {"dense"} | {studied.RANKS: {"even"}, studied.ABLATION: {"even", "ranks"}}.get(
            row["arm"], set()
        )
    read = {made["protocol"][name] for name in ("text", "calibrated_on", "selected_on")}
    assert len(read) == 3 and made["protocol"]["units"] == 6
    assert all(np.sum(values) == pytest.approx(1) for values in made["shared"].values())
    (drawn,) = made["panels"]
    assert drawn["x_values"] == [4, 12] and [line["name"] for line in drawn["series"]] == list(studied.ARMS)
    stored = json.loads((tmp_path / "a.json").read_text(), parse_constant=pytest.fail)
    assert part_again(studied.allocation, stored, home)
    again = studied.allocation.recheck(stored, context=Context(state=home / "state", browser=False))
    assert set(again) == {"even", "ranks", "zero", "mean"}
    assert all(now == pytest.approx(kept, rel=1e-4) for kept, now in again.values())
    with pytest.raises(BadSetting, match="The number of selection windows is 0"):
        ask(select=0)


@pytest.mark.parametrize(
    ("apart", "said"),
    [
        ((0.1, 0.1), "Ranks share keys out better than ablation at every number of keys that was tried"),
        ((-0.1, 0.0), "Ablation shares keys out better than ranks wherever a difference shows"),
        ((-0.1, 0.1), "Neither ranks nor ablation share keys out better throughout"),
        ((0.0, 0.0), "Ranks and ablation do not differ significantly"),
    ],
)
def test_the_sentence_follows_the_signs(apart, said):
    rows = []
    for keys, ablation in zip((16, 32), apart, strict=True):
        for arm, even, ranks in (
            (studied.EVEN, None, None),
            (studied.RANKS, -0.1, None),
            (studied.ABLATION, 0, ablation),
        ):
            row = {"keys": keys, "arm": arm, "evenly": 0.75 if arm == studied.ABLATION else keys / 64}
            for key, value in (("against_dense", 0.2), ("against_even", even), ("against_ranks", ranks)):
                if value is not None:
                    row |= {key: value, f"{key}_low": value - 0.01, f"{key}_high": value + 0.01, f"{key}_p": 0.001}
            rows.append(row)
    told = studied.shown({"rows": rows, "dense": 20.0, "protocol": {"units": 16}})["sentence"]
    assert told.startswith(said)
    assert "keys by ranks are better at 16, 32; keys by ablation are not significantly different at 16, 32." in told
    assert "Every time 75% shared alike was chosen by ablation, the most that was tried." in told
