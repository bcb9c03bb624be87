"""The verb `ablate` on a tiny model: which heads are tried, what they lose, refusals."""

import json

import numpy as np
import pytest

from analysis.commands.heads import Ablate
from analysis.errors import BadSetting


def test_the_estimate_ranks_and_exact_passes_follow(ask):
    answer = ask(Ablate, exact=3)
    numbers, table, estimate = answer.numbers, answer.tables["heads"], answer.arrays["estimate"]
    best = sorted(np.ndindex(estimate.shape), key=lambda cell: -estimate[cell])[:3]
    assert [(row["layer"], row["head"]) for row in numbers["rows"]] == best
    assert answer.arrays["change"].shape == (3, 63) and len(table) == estimate.size
    assert table["loss_change"].notna().tolist() == [True] * 3 + [False] * (estimate.size - 3)
    for row, change in zip(numbers["rows"], answer.arrays["change"], strict=True):
        assert row["loss_change"] == pytest.approx(change.mean(), abs=1e-6) and row["units"] == 16
        assert row["low"] <= row["loss_change"] <= row["high"] and row["kl"] > 0
        assert row["worst"] == change.argmax() + 1 and row["worst_change"] == pytest.approx(change.max())
        assert row["estimate"] == pytest.approx(estimate[row["layer"], row["head"]])
    costliest = max(numbers["rows"], key=lambda row: row["loss_change"])
    assert costliest["without"] in numbers["sentence"] and -1 <= numbers["agreement"] <= 1
    json.dumps(numbers, allow_nan=False)


def test_all_windows_are_their_windows_together(ask):
    """Means over windows of 64 tokens and fewer count by the tokens that each predicts."""
    windows_all = ask(Ablate, heads="1.2", part=None)
    count = windows_all.tables["tokens"]["window"].max() + 1
    apart = [ask(Ablate, heads="1.2", part=part) for part in range(count)]
    (row,), rows = windows_all.numbers["rows"], [part.numbers["rows"][0] for part in apart]
    sizes = [part.arrays["change"].shape[1] for part in apart]
    for name in ("loss_change", "kl", "estimate"):
        mean = np.average([part[name] for part in rows], weights=sizes)
        assert row[name] == pytest.approx(mean, abs=1e-6), name
    change = windows_all.arrays["change"]
    assert count > 1 and np.isnan(change).sum() == count - 1
    joined = np.concatenate([part.arrays["change"][0] for part in apart])
    assert change[~np.isnan(change)] == pytest.approx(joined, abs=1e-6)
    worst = max(rows, key=lambda part: part["worst_change"])
    assert (row["worst"], row["worst_word"]) == (worst["worst"], worst["worst_word"])
    assert windows_all.numbers["scope"] == f"this text (all {count} windows)"
    assert apart[0].numbers["scope"] == f"this text (window 1 of {count})"


def test_heads_that_are_listed_and_all_of_them(ask):
    listed = ask(Ablate, heads="1.2,0.1,1.2", by="mean").numbers
    assert [row["without"] for row in listed["rows"]] == ["1.2", "0.1"] and listed["agreement"] is None
    all_heads = ask(Ablate, heads="all")
    assert len(all_heads.numbers["rows"]) == all_heads.arrays["estimate"].size


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"by": "noise"}, "'noise'"),
        ({"heads": "3-6"}, "'3-6' names no head"),
        ({"heads": "9.0"}, "Layers run from 0 to"),
        ({"heads": "0.99"}, "Heads run from 0 to"),
        ({"exact": 13}, "has 12 heads"),
        ({"part": 99}, "window 99 was asked for"),
    ],
)
def test_what_cannot_be_is_one_sentence(arguments, message, ask):
    with pytest.raises(BadSetting, match=message):
        ask(Ablate, **arguments)
