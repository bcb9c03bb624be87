"""The units of stored studies are documents: windows lie inside them, and few of them draw no bar."""

from types import SimpleNamespace

import numpy as np
import pytest

from analysis.claims import Comparison, Verdict
from analysis.errors import BadText
from analysis.metrics.intervals import SEEDS
from analysis.studies import NAMED
from analysis.studies.stored.comparisons import (
    difference,
    holm_corrected,
    interval_caveat,
    multiplicity_note,
    scope_of_claim,
)
from analysis.studies.text.held_out import held_out_windows

TRAINED = (
    *("dominance", "focal-temperatures", "focal-limits", "focal-scaling", "query-router", "length-extension"),
    *("finetuning", "ablations", "baselines", "pretraining", "lengths", "focus-printed", "focal-tasks", "alignment"),
)


def cut(texts: list[str], length: int, windows: int, **options) -> tuple[np.ndarray, np.ndarray]:
    """Windows of texts of which every character is a token."""

    def tokenizer(text, **_):
        return {"input_ids": [ord(letter) for letter in text]}

    tokenizer.eos_token_id = None
    return held_out_windows(SimpleNamespace(tokenizer=tokenizer), texts, length, windows, **options)


def test_windows_of_documents():
    windows, documents = cut(["a" * 95, "b" * 25, "c" * 40], 10, 8)
    assert all(len(set(row)) == 1 for row in windows.tolist()) and documents.tolist() == [0, 0, 0, 1, 1, 2, 2, 2]
    assert [chr(row[0]) for row in windows] == list("aaabbccc")
    few, chosen = cut(["a" * 95, "b" * 25, "c" * 40], 10, 2)
    assert chosen.tolist() == [0, 2] and len(few) == 2, "evenly chosen"
    every_window, chosen = cut(["a" * 95, "b" * 25, "c" * 40], 10, 100)
    assert np.bincount(chosen).tolist() == [9, 2, 4]
    windows, documents = cut(["a" * 6, "b" * 30, "c" * 6, "d" * 3], 10, 9)
    assert documents.tolist() == [0, 0, 0, 1] and "".join(map(chr, windows[3])) == "aaaaaacccc"
    assert len(cut(["a" * 12], 10, 9, fewest=1)[0]) == 1
    with pytest.raises(BadText, match="has 12 tokens and 2 windows need 20"):
        cut(["a" * 12], 10, 9)


def test_few_documents_and_an_arm_against_itself_are_not_judged():
    losses, documents = np.array([1.0, 1.2, 1.4, 1.6]), np.array([0, 0, 1, 2])
    row = difference("apart", losses, np.ones(4), documents)
    assert row["apart"] == pytest.approx(0.3) and row["apart_low"] is None
    assert row["apart_points"] == pytest.approx([0.1, 0.4, 0.6])
    assert Comparison.of(row, "apart").verdict is Verdict.NOT_JUDGED
    # p of 0.03 and 0.02 are a family of two: a third row, of an arm with itself, makes it no larger.
    itself = {"a": 0.0, "a_low": 0.0, "a_high": 0.0, "a_p": 1.0}
    rows = [{"a": -1.0, "a_low": -1.9, "a_high": -0.1, "a_p": p} for p in (0.03, 0.02)]
    corrected = holm_corrected([*rows, itself], "a")
    assert [row.get("a_holm") for row in corrected] == pytest.approx([0.04, 0.04, None], nan_ok=True)
    assert "Of 2 comparisons" in multiplicity_note(corrected, "a")


def test_a_study_says_what_its_intervals_and_its_claims_rest_on():
    assert "over 16 documents" in interval_caveat({"units": 16}) and "training" not in interval_caveat({"units": 16})
    assert "in these 3 texts" in interval_caveat({"units": 3})
    assert "and over 3 trainings" in interval_caveat({"units": 16, "seeds": 3})
    assert "this router, one training of every arm, and not of the method" in scope_of_claim(1)
    assert "these models, 2 trainings" in scope_of_claim(2, "model") and scope_of_claim(3) == ""


def test_what_holds_alone_need_not_hold_among_many():
    """p = 0.03 alone; beside 0.001, 0.2 and 0.6 Holm makes it 0.09, and 0.004 of the smallest."""
    rows = [
        {"a": -1.0, "a_low": -1.9, "a_high": -0.1, "a_p": 0.03, "b": 2.0, "b_low": 1.5, "b_high": 2.5, "b_p": 0.001},
        {"a": 0.1, "a_low": -0.1, "a_high": 0.3, "a_p": 0.2, "b": 0.1, "b_low": -0.4, "b_high": 0.6, "b_p": 0.6},
    ]
    corrected = holm_corrected(rows, "a", "b")
    assert corrected[0]["a_holm"] == pytest.approx(0.09) and corrected[0]["b_holm"] == pytest.approx(0.004)
    signs = [
        Comparison.of(row, key).direction for row, key in ((rows[0], "a"), (corrected[0], "a"), (corrected[0], "b"))
    ]
    assert signs == [-1, 0, 1]
    assert "Of 4 comparisons, each is judged after Holm's correction" in multiplicity_note(corrected, "a", "b")
    assert "each is judged by its own interval" in multiplicity_note(rows, "a", "b")
    assert holm_corrected([{"a_low": None, "a_p": None}], "a") == [{"a_low": None, "a_p": None}]
    assert multiplicity_note([rows[0]], "a") == "", "one is judged"


def test_trainings_that_disagree_are_not_significantly_different_from_their_control():
    losses = np.array([[0.9], [0.8], [1.2]]) + np.zeros((1, 8))
    row = difference("apart", losses, np.ones(8), np.arange(8))
    assert row["apart"] == pytest.approx(-1 / 30) and Comparison.of(row, "apart").verdict is Verdict.NOT_SIGNIFICANT
    assert (row["apart_lowest"], row["apart_highest"]) == pytest.approx((-0.2, 0.2))
    pooled = difference("apart", losses.mean(0), np.ones(8), np.arange(8))
    assert Comparison.of(pooled, "apart").direction == -1, "of these models"
    paired = difference("apart", losses, losses + 0.1, np.arange(8))
    assert paired["apart_high"] == pytest.approx(-0.1), "what a seed gives both arms cancels"


@pytest.mark.parametrize("name", TRAINED)
def test_what_is_trained_is_trained_three_times(name):
    assert NAMED[name].defaults["seeds"] == SEEDS == 3
