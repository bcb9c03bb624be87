"""The units of stored studies are documents: windows lie inside them, and few of them draw no bar."""

from types import SimpleNamespace

import numpy as np
import pytest

from analysis.errors import BadText
from analysis.metrics.intervals import SEEDS
from analysis.studies import NAMED
from analysis.studies.stored.panels import (
    as_sure,
    decided,
    difference,
    how_sure,
    in_family,
    judged,
    nats,
    of_comparisons,
    of_whom,
    seen,
    signed,
)
from analysis.studies.text.held_out import held_out_windows

TRAINED = (
    *("dominance", "focal-temperatures", "focal-limits", "focal-scaling", "query-router", "length-extension"),
    *("finetuning", "ablations", "baselines", "pretraining", "lengths", "focus-printed", "focal-tasks", "alignment"),
)


def cut(texts: list[str], length: int, windows: int, **more) -> tuple[np.ndarray, np.ndarray]:
    """Windows of texts of which every character is a token."""

    def tokenizer(text, **_):
        return {"input_ids": [ord(letter) for letter in text]}

    tokenizer.eos_token_id = None
    return held_out_windows(SimpleNamespace(tokenizer=tokenizer), texts, length, windows, **more)


def test_a_window_lies_in_one_document_and_every_document_takes_part():
    windows, documents = cut(["a" * 95, "b" * 25, "c" * 40], 10, 8)
    assert all(len(set(row)) == 1 for row in windows.tolist()) and documents.tolist() == [0, 0, 0, 1, 1, 2, 2, 2]
    assert [chr(row[0]) for row in windows] == list("aaabbccc")
    few, which = cut(["a" * 95, "b" * 25, "c" * 40], 10, 2)
    assert which.tolist() == [0, 2] and len(few) == 2, "evenly chosen"
    most, which = cut(["a" * 95, "b" * 25, "c" * 40], 10, 100)
    assert np.bincount(which).tolist() == [9, 2, 4]


def test_short_documents_are_joined_into_one_unit():
    windows, documents = cut(["a" * 6, "b" * 30, "c" * 6, "d" * 3], 10, 9)
    assert documents.tolist() == [0, 0, 0, 1] and "".join(map(chr, windows[3])) == "aaaaaacccc"
    assert len(cut(["a" * 12], 10, 9, least=1)[0]) == 1
    with pytest.raises(BadText, match="has 12 tokens and 2 windows need 20"):
        cut(["a" * 12], 10, 9)


def test_few_documents_are_points_and_nothing_is_judged_by_them():
    losses, documents = np.array([1.0, 1.2, 1.4, 1.6]), np.array([0, 0, 1, 2])
    found = difference("apart", losses, np.ones(4), documents)
    assert found["apart"] == pytest.approx(0.3) and found["apart_low"] is None
    assert found["apart_points"] == pytest.approx([0.1, 0.4, 0.6]) and decided(found, "apart") == 0
    assert nats(found, "apart").endswith("in these 3 texts +0.1000, +0.4000, +0.6000")
    assert judged(found, "apart", {-1: "lower", 0: "not told apart", 1: "higher"}) == "not judged"


def test_what_is_not_told_apart_says_what_could_have_been_seen():
    losses = np.array([0.01, -0.02, 0.03, -0.01, 0.0, -0.015])
    found = difference("apart", losses, np.zeros(6), np.arange(6))
    assert found["apart_low"] < 0 < found["apart_high"] and found["apart_points"] is None
    assert "could have been seen" in nats(found, "apart")
    assert "could have been seen" not in nats(difference("apart", losses + 1, np.zeros(6), np.arange(6)), "apart")


def test_a_study_says_what_its_intervals_rest_on():
    assert "over 16 documents" in how_sure({"units": 16})
    assert "in these 3 texts" in how_sure({"units": 3}) and "percentile" in how_sure({})


def test_what_was_stored_before_documents_were_units_calls_its_intervals_rough():
    said = "lower (-0.1000 nats per token, 95% interval -0.2000 to -0.1000)"
    assert as_sure(said, {}) == "lower (-0.1000 nats per token, rough interval -0.2000 to -0.1000)"
    assert as_sure(said, {"units": 16}) == said == as_sure(said, {"units": 3})
    known, unknown = {"a_low": 0.1, "b_low": 0.2}, {"a_low": None, "b_low": 0.3}
    assert of_comparisons([known, unknown], "a", "b") == " Of 3 comparisons, each is judged by its own interval."
    assert of_comparisons([known, unknown], "a") == "", "one is judged"


def test_what_holds_alone_need_not_hold_among_many():
    """p = 0.03 alone; beside 0.001, 0.2 and 0.6 Holm makes it 0.09, and 0.004 of the smallest."""
    rows = [
        {"a": -1.0, "a_low": -1.9, "a_high": -0.1, "a_p": 0.03, "b": 2.0, "b_low": 1.5, "b_high": 2.5, "b_p": 0.001},
        {"a": 0.1, "a_low": -0.1, "a_high": 0.3, "a_p": 0.2, "b": 0.1, "b_low": -0.4, "b_high": 0.6, "b_p": 0.6},
    ]
    found = in_family(rows, "a", "b")
    assert found[0]["a_holm"] == pytest.approx(0.09) and found[0]["b_holm"] == pytest.approx(0.004)
    assert decided(rows[0], "a") == -1 and decided(found[0], "a") == 0 and decided(found[0], "b") == 1
    assert "could have been seen" in nats(found[0], "a") and "could" not in nats(rows[0], "a")
    assert of_comparisons(found, "a", "b").endswith("each is judged after Holm's correction for all of them.")
    assert in_family([{"a_low": None, "a_p": None}], "a") == [{"a_low": None, "a_p": None}]


def test_an_arm_against_itself_is_no_comparison_and_0_has_no_sign():
    """p of 0.03 and 0.02 are a family of two: a third row, of an arm with itself, makes it no larger."""
    itself = {"a": 0.0, "a_low": 0.0, "a_high": 0.0, "a_p": 1.0}
    rows = [{"a": -1.0, "a_low": -1.9, "a_high": -0.1, "a_p": p} for p in (0.03, 0.02)]
    found = in_family([*rows, itself], "a")
    assert [row.get("a_holm") for row in found] == pytest.approx([0.04, 0.04, None], nan_ok=True)
    assert of_comparisons(found, "a").startswith(" Of 2 comparisons, each is judged after Holm's")
    assert signed(-0.00004) == "0.0000" and signed(-0.0001) == "-0.0001" and signed(-0.0004, "+.1%") == "0.0%"
    assert seen([rows[0], rows[1] | {"a_low": -2.9}], "a") == pytest.approx(2.8 * 2.8 / 2 / 1.96)
    assert seen([{"a": 1.0, "a_low": None, "a_high": None}], "a") is None


def test_with_fewer_than_three_seeds_a_sentence_is_about_what_was_trained_here():
    assert "this router, one training of every arm, and not of the method" in of_whom(1)
    assert "these models, 2 trainings" in of_whom(2, "model") and of_whom(3) == ""
    assert "and over 3 trainings" in how_sure({"units": 16, "seeds": 3})
    assert "training" not in how_sure({"units": 16, "seeds": 1})


def test_trainings_that_disagree_are_not_told_apart_from_their_control():
    losses = np.array([[0.9], [0.8], [1.2]]) + np.zeros((1, 8))
    found = difference("apart", losses, np.ones(8), np.arange(8))
    assert found["apart"] == pytest.approx(-1 / 30) and found["apart_low"] < 0 < found["apart_high"]
    assert (found["apart_lowest"], found["apart_highest"]) == pytest.approx((-0.2, 0.2))
    assert decided(difference("apart", losses.mean(0), np.ones(8), np.arange(8)), "apart") == -1, "of these models"
    paired = difference("apart", losses, losses + 0.1, np.arange(8))
    assert paired["apart_high"] == pytest.approx(-0.1), "what a seed gives both arms cancels"


@pytest.mark.parametrize("name", TRAINED)
def test_what_is_trained_is_trained_three_times(name):
    assert NAMED[name].defaults["seeds"] == SEEDS == 3
