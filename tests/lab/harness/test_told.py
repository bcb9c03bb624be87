"""What the stored studies claim: each claim, how many there are, one family for all of them, and what chose itself."""

import json

import pytest

from analysis.places import CACHE
from lab.harness.telling import concluded, counted, lines_of, portion

STORED = {path.stem: json.loads(path.read_text()) for path in (CACHE / "demo" / "studies").glob("*.json")}


def row(value: float, p: float, **facts) -> dict:
    """A comparison whose interval ends 0.1 below and above its value."""
    return {"loss": value, "loss_low": value - 0.1, "loss_high": value + 0.1, "loss_p": p, **facts}


ROWS = [row(-0.5, 0.001, arm="a"), row(0.3, 0.02, arm="b"), row(0.05, 0.4, arm="c")]


def test_each_claim_is_corrected_for_all_of_them():
    sentence = concluded("Of these, ", ROWS, {"loss": "dense"}, "{arm}")
    assert sentence.startswith("Of these, a: lower than dense (−0.5000")
    assert "; b: higher than dense (+0.3000" in sentence
    assert "; not significantly different from dense: c (+0.0500" in sentence
    assert sentence.endswith("Holm's correction for all of them.")
    close = [row(0.11, 0.03, arm="b"), *ROWS[2:]]
    both = concluded("", close, {"loss": "dense"}, "{arm}")
    assert both.startswith("not significantly different from dense: b (+0.1100") and "; c (" in both, (
        "0.03 twice is 0.06"
    )
    alone = concluded("", close[:1], {"loss": "dense"}, "{arm}", seeds=1, what="model")
    assert alone.startswith("b: higher than dense") and "All of it is said of this model" in alone


def test_counts_say_what_the_sample_could_detect():
    sentence = counted(ROWS, "arms", {"loss": "dense"})
    assert sentence.startswith(
        "Of 3 arms, 1 lower and 1 higher than dense (the smallest effect this sample could detect"
    )
    assert "Of 3 comparisons" in sentence and "detect" not in counted(ROWS[:2], "arms", {"loss": "dense"})


def test_a_grid_that_is_stored_in_part_says_so_with_the_hours_of_the_rest():
    assert portion(3, 12, "cells", 0.6).split() == (
        "Of the 12 cells 3 are measured; the others would take one processor about 5.4 hours.".split()
    )
    assert portion(12, 12, "cells", 0.6) == ""


def test_a_line_for_every_arm_and_nothing_where_it_has_no_row():
    rows = [{"arm": "a", "k": 1, "y": 2.0, "y_low": 1.0, "y_high": 3.0}, {"arm": "b", "k": 2, "y": 5.0}]
    panel = lines_of("title", rows, "arm", "k", "keys", "nats", "y")
    assert panel["x_values"] == [1, 2] and [line["name"] for line in panel["series"]] == ["a", "b"]
    assert [line["y"] for line in panel["series"]] == [[2.0, None], [None, 5.0]]
    assert panel["series"][0]["low"] == [1.0, None] and panel["series"][1]["low"] is None


@pytest.mark.parametrize(
    ("name", "count"),
    [("top-k8-top1", 15), ("pruned-k8-top1", 14), ("lengths", 24), ("causality-k8-top1", 4), ("equal-bytes", 148)],
)
def test_every_comparison_is_one_of_a_family(name, count):
    assert f"Of {count} comparisons, each is judged after Holm's correction" in STORED[name]["sentence"]


def test_what_a_control_reads_stands_beside_it():
    rows = {result["arm"]: f"{result['pairs_share']:.1%}" for result in STORED["groups-k8-top1"]["rows"]}
    sentence = STORED["groups-k8-top1"]["sentence"]
    assert f"against random tokens, which reads fewer ({rows['random tokens']}" in sentence
    assert rows["trained"] in sentence
    first = STORED["top-k8-top1"]["rows"][0]
    assert f"(random tokens {first['random_pairs_share']:.0%})" in STORED["top-k8-top1"]["sentence"]


def test_a_budget_that_a_method_misses_is_named():
    missed = {(result["label"], result["share"]) for result in STORED["equal-budget"]["rows"] if not result["reached"]}
    assert ("Bucket routing", 0.05) in missed and "Bucket routing, at 5%" in STORED["equal-budget"]["sentence"]
    assert ("Focus, hard groups", 0.1) in missed


def test_all_heads_are_the_whole_of_their_own_gain():
    rows = [result for result in STORED["induction"]["rows"] if result["arm"] == "all heads"]
    assert [(result["kept"], result["kept_low"], result["kept_high"]) for result in rows] == [(1.0, None, None)] * 2


def test_the_companions_caps_pass_by_limits_on_texts_that_chose_nothing():
    (path,) = (CACHE / "demo-gpt2").glob("*/studies/calibration.json")
    rows = json.loads(path.read_text())["rows"]
    assert {result["verdict"] for result in rows if result["units"] < 5} == {"too few documents to judge"}
    passed = [result for result in rows if result["verdict"] == "passes"]
    assert all(result["upper"] < 0.01 and result["worst_bin_upper"] < 0.02 for result in passed)
