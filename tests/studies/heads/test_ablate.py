"""The verb `ablate` on a tiny model: which heads are tried, what is said of them, refusals."""

import json

import numpy as np
import pytest

from analysis.errors import BadSetting
from analysis.studies.heads.ablate import ablate
from tests.made.evaluating import reader


@pytest.fixture(scope="module")
def ask(home, context):
    return reader(context, home)


def test_the_estimate_ranks_and_exact_passes_follow(ask):
    answer = ask(ablate, exact=3)
    numbers, table, estimate = answer.numbers, answer.tables["heads"], answer.arrays["estimate"]
    best = sorted(np.ndindex(estimate.shape), key=lambda one: -estimate[one])[:3]
    assert [(row["layer"], row["head"]) for row in numbers["rows"]] == best
    assert answer.arrays["change"].shape == (3, len(answer.tables["tokens"].query("position < 64")) - 1)
    assert len(table) == estimate.size and table["loss_change"].notna().tolist() == [True] * 3 + [False] * (
        estimate.size - 3
    )
    for row, change in zip(numbers["rows"], answer.arrays["change"], strict=True):
        assert row["loss_change"] == pytest.approx(change.mean(), abs=1e-6) and row["units"] == 16
        assert row["low"] <= row["loss_change"] <= row["high"] and row["kl"] > 0
        assert row["worst"] == change.argmax() + 1 and row["worst_change"] == pytest.approx(change.max())
        assert row["estimate"] == pytest.approx(estimate[row["layer"], row["head"]])
    most = max(numbers["rows"], key=lambda row: row["loss_change"])
    assert f"With the output of {most['without']} set to zero" in numbers["sentence"]
    assert "the most of 3 exact passes" in numbers["sentence"] and -1 <= numbers["agreement"] <= 1
    json.dumps(numbers, allow_nan=False)


def test_all_windows_are_their_windows_together(ask):
    """Means over windows of 64 tokens and fewer count by the tokens that each predicts."""
    count = len(set(ask(ablate, heads="1.2").tables["tokens"]["window"]))
    apart = [ask(ablate, heads="1.2", part=part) for part in range(count)]
    sizes = [one.arrays["change"].shape[1] for one in apart]
    answer, (row,) = (every := ask(ablate, heads="1.2", part=None)).numbers, every.numbers["rows"]
    for name in ("loss_change", "kl", "estimate"):
        singles = [one.numbers["rows"][0][name] for one in apart]
        assert row[name] == pytest.approx(np.average(singles, weights=sizes), abs=1e-6), name
    assert count > 1 and np.isnan(every.arrays["change"]).sum() == count - 1
    joined = np.concatenate([one.arrays["change"][0] for one in apart])
    assert every.arrays["change"][~np.isnan(every.arrays["change"])] == pytest.approx(joined, abs=1e-6)
    worst = max((one.numbers["rows"][0] for one in apart), key=lambda one: one["worst_change"])
    assert (row["worst"], row["worst_word"]) == (worst["worst"], worst["worst_word"])
    assert answer["scope"] == f"this text (all {count} windows)" and answer["scope"] in answer["sentence"]
    assert apart[0].numbers["scope"] == f"this text (window 1 of {count})"
    assert apart[0].numbers["scope"] in apart[0].numbers["sentence"]


def test_heads_that_are_listed_alone_together_and_all_but_them(ask):
    alone = ask(ablate, heads="1.2,0.1", by="mean").numbers["rows"]
    assert [row["without"] for row in alone] == ["1.2", "0.1"]
    both = ask(ablate, heads="1.2,0.1,1.2", by="mean", together=True, others=True)
    assert [row["without"] for row in both.numbers["rows"]] == ["1.2, 0.1", "all but 1.2, 0.1"]
    assert both.numbers["agreement"] is None and "layer" not in both.numbers["rows"][0]
    assert both.numbers["rows"][1]["kl"] > both.numbers["rows"][0]["kl"]
    assert len(ask(ablate, heads="all").numbers["rows"]) == both.arrays["estimate"].size


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"by": "noise"}, "is replaced by zero, mean, resample, not by 'noise'"),
        ({"heads": "3-6"}, "or a list of layer.head such as 3.6,2.1, and '3-6' was given"),
        ({"heads": "9.0"}, "Layers run from 0 to"),
        ({"heads": "0.99"}, "Heads run from 0 to"),
        ({"together": True}, "needs them listed"),
        ({"exact": 0}, "Exact passes are for 1 to 12 heads, and 0 were asked for"),
        ({"part": 99}, "window 99 was asked for"),
    ],
)
def test_what_cannot_be_is_one_sentence(given, said, ask):
    with pytest.raises(BadSetting, match=said):
        ask(ablate, **given)
