"""What the stored studies say of themselves: unequal reads, choices, families and what could not be judged."""

import json
import re

import pytest

from analysis.places import CACHE
from analysis.runs.stored import Column
from lab.equal.prefill import _law, _sentence
from lab.focus.lengths import sentence
from lab.harness import documented

STORED = {path.stem: json.loads(path.read_text()) for path in (CACHE / "demo" / "studies").glob("*.json")}


def said(name: str) -> str:
    return STORED[name]["sentence"]


def test_what_a_control_reads_stands_beside_it():
    rows = {row["arm"]: f"{row['pairs_share']:.1%}" for row in STORED["groups-k8-top1"]["rows"]}
    assert f"of fewer pairs, {rows['random tokens']} against {rows['trained']}" in said("groups-k8-top1")
    rows = {row["arm"]: f"{row['pairs_share']:.1%}" for row in STORED["causality-k8-top1"]["rows"]}
    assert f"which read {rows['trained, literal']} of the pairs" in said("causality-k8-top1")
    row = STORED["top-k8-top1"]["rows"][0]
    assert f"better than random tokens, which read {row['random_pairs_share']:.0%} of the pairs" in said("top-k8-top1")
    assert "worse than a window of equal pairs" in said("top-k8-top1"), "the control of equal pairs is judged too"


@pytest.mark.parametrize(
    ("name", "count"),
    [("top-k8-top1", 15), ("pruned-k8-top1", 14), ("lengths", 24), ("causality-k8-top1", 4), ("eviction", 32)],
)
def test_every_comparison_that_is_told_is_one_of_a_family(name, count):
    assert f"Of {count} comparisons, each is judged after Holm's correction" in said(name)


def test_both_sides_of_a_comparison_are_told():
    assert re.search("lose less in .* and more in .*; all layers together: not significantly", said("pruned-k8-top1"))


def test_as_many_buckets_are_not_as_many_keys():
    best, low = (next(row for row in STORED["routing"]["means"] if row["router"] == kind) for kind in ("mlp", "kmeans"))
    assert f"in {best['selectivity']:.1%} of the keys" in said("routing")
    assert f"symmetric k-means {low['recall']:.1%} in {low['selectivity']:.1%}" in said("routing")


def test_what_chose_itself_says_so():
    names = {row["domain"] for row in STORED["temperature"]["rows"]}
    assert said("temperature").count("the lowest of 10 temperatures, on the texts that choose it, is") == len(names)
    assert "documents, too few for an interval), not judged" in said("temperature")
    assert said("eviction").count("the lowest of 8 rules, on the texts that choose it, is") == 4


def test_a_budget_that_a_method_misses_is_named():
    missed = {(row["label"], row["share"]) for row in STORED["equal-budget"]["rows"] if not row["reached"]}
    assert ("Bucket routing", 0.05) in missed and "Bucket routing, at 5%" in said("equal-budget")
    assert ("Focus, hard groups", 0.1) in missed and "Focus, hard groups, at 5% and 10%" in said("equal-budget")
    rows = STORED["equal-budget"]["rows"]
    most = max(row["sharing"] for row in rows)
    assert any(f"up to {most:.2f} times the mean here" in note for note in STORED["equal-budget"]["notes"])
    assert {row["calibrated"] for row in rows if row["label"] == "Focus, random groups"} == {
        "k8-top1, random centroids"
    }


def test_all_heads_are_the_whole_of_their_own_gain():
    rows = [row for row in STORED["induction"]["rows"] if row["arm"] == "all heads"]
    assert [(row["kept"], row["kept_low"], row["kept_high"]) for row in rows] == [(1.0, None, None)] * 2
    kept = [row["kept"] for row in STORED["induction"]["rows"] if row["arm"] == "without the named heads"]
    assert max(kept) < 0 and all(f"none of it ({one:.0%}) is left" in said("induction") for one in kept)
    assert any("28 answers of one text" in note for note in STORED["induction"]["notes"])


def test_caps_that_are_not_significant_say_what_could_be_detected():
    told = said("query-router")
    assert "lower at 0 of 5 caps, higher at " in told and "Of 5 comparisons, each is judged after Holm's" in told
    assert re.search(r"not significant at a cap of [\d, ]+, where the smallest effect .* is [\d.]+%", told)


def faster(**changed) -> dict:
    row = {"title": "A rule", "length": 64, "speedup": 1.3, "speedup_low": 1.2, "speedup_high": 1.4, "skipped": 0.5}
    row |= {"against_dense": -0.01, "against_dense_low": None, "against_dense_high": None}
    return row | {"against_dense_points": [-0.02, 0.0]} | changed


def test_a_rule_is_faster_where_every_round_is():
    told = _sentence([faster(), faster(length=32, speedup_low=0.9)], [32, 64], 3)
    assert told.startswith(
        "At 64 tokens, the longest measured, A rule is faster than dense attention in each of 3 rounds"
    )
    assert "differs from dense attention's by −0.0100 nats per token, in these 2 texts" in told and "At 32" not in told
    assert _sentence([faster(speedup_low=0.9)], [64], 3).startswith("No rule reads a prompt of up to 64 tokens faster")


def test_a_law_that_is_far_off_is_none():
    points = [{"skipped": one} for one in (0.001, 0.1, 0.3)]
    law = {"a": 10.0, "b": 2.0, "error": 5.0}
    assert "at 10% to 30% of the blocks skipped" in _law(law, points) and "no law" in _law(law, points)
    assert "no law" not in _law(law | {"error": 1.2}, points)


def test_what_each_interval_alone_would_tell_stands_beside_what_the_family_tells():
    rows = STORED["lengths"]["rows"]
    for key, name in (("against_dense", "dense attention"), ("against_random", "random tokens")):
        alone = sum(row[f"{key}_low"] > 0 for row in rows)
        assert alone > 0
        assert f"from {name} 0 higher and 0 lower (by their own intervals {alone} and 0)" in said("lengths")
    wide = {"against_random_low": -1.0, "against_random_high": 1.0, "against_random_p": 1.0}
    assert "from random tokens 0 higher and 0 lower;" in sentence([row | wide for row in rows], 512, 3)


def test_a_family_judges_all_some_or_none_and_says_what_could_be_detected():
    rows = STORED["lengths"]["rows"]
    significant = {"against_dense_p": 1e-9}
    assert "(extrapolated); not significant in this family, and judged alone the smallest effect" in said("lengths")
    assert "(extrapolated). k = 2" in sentence([row | significant for row in rows], 512, 3)
    some = [row | (significant if row["length"] < 4096 else {}) for row in rows]
    assert "; 1 of 4 not significant in this family" in sentence(some, 512, 3)
    few = [row | dict.fromkeys(("against_dense_low", "against_dense_high", "against_dense_p")) for row in rows]
    assert "(extrapolated); too few texts to judge. k = 2" in sentence(few, 512, 3)


def test_pieces_of_documents_have_no_brackets():
    row = {"change": 0.5, "change_low": 0.4, "change_high": 0.6, "unit": "documents"}
    assert documented.cell(row, Column("change", "change")) == "0.5 (0.4 to 0.6)"
    assert documented.cell(row | {"unit": "64 tokens in a row"}, Column("change", "change")) == "0.5"


def test_the_companions_caps_pass_by_limits_on_texts_that_chose_nothing():
    """6 of 6 were said of it by point estimates, on the texts that chose the cap."""
    (path,) = (CACHE / "demo-gpt2").glob("*/studies/calibration.json")
    rows, told = json.loads(path.read_text())["rows"], json.loads(path.read_text())["sentence"]
    assert {row["verdict"] for row in rows if row["units"] < 5} == {"too few documents to judge"}
    passed = [row for row in rows if row["verdict"] == "passes"]
    assert all(row["upper"] < 0.01 and row["worst_bin_upper"] < 0.02 for row in passed)
    assert (
        told.startswith(f"{len(passed)} of {len(rows)} corpora and contexts pass") and "by one-sided 95% limits" in told
    )
