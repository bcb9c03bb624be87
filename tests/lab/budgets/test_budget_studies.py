"""What the studies of budgets store of a tiny model: as many keys in each arm, and what chose them."""

import numpy as np
import pytest

from analysis.errors import BadText
from lab.budgets import allocation
from lab.budgets.calibration_table import verdict_of
from tests.made.calibrated import text

ARMS = ["static", "with the query", "the query zeroed at test", "retrained without it"]


def test_query_budgets_read_as_many_keys_as_static_ones(stored):
    study = stored("query-router")
    assert [row["arm"] for row in study["rows"]] == ["dense", *ARMS, *ARMS]
    tables = ["a table of heads", "a table of heads and positions"]
    assert [row["arm"] for row in study["correlations"]] == [*ARMS[1:], *tables]
    assert study["rows"][0]["reads_causal"] == 1 and study["rows"][0]["attended"] == 16.5
    for row in study["rows"]:
        assert row["reads_causal"] <= row["reads_kv_least"] <= row["reads_kv_most"] <= 1
        assert row["kv_read"] == pytest.approx((1 + row["reads_kv_least"]) / 2)
    for first in (1, 5):
        keys = [row["attended"] for row in study["rows"][first : first + 4]]
        assert max(keys) / min(keys) < 1.1 and study["rows"][first]["against_static"] == 0
    assert {curve["rate"] for curve in study["curves"]} == {3e-4, 1e-3, 3e-3} and len(study["curves"]) == 6
    assert set(study["check"]) == {"mean log k*", "losses, cap 3", "losses, cap 8"}


def test_one_document_cannot_be_split_and_twice_the_context_needs_no_fewer(ask, tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "a.txt").write_text(text(0))
    with pytest.raises(BadText, match="two documents to train on"):
        ask("query-router", corpus=str(tmp_path / "one"))
    for side, seeds in {"train": (0, 1), "valid": (2, 3, 4)}.items():
        (tmp_path / "many" / side).mkdir(parents=True)
        for seed in seeds:
            (tmp_path / "many" / side / f"{seed}.txt").write_text(text(seed))
    rows = ask("calibration", corpus=str(tmp_path / "many"), windows=4).numbers["rows"]
    assert {row["corpus"] for row in rows} == {"many"}, "a folder of texts is one corpus"
    sizes = [(row["context"], row["units"], row["tokens"]) for row in rows]
    assert sizes == [(32, 3, 4 * 32), (64, 3, 3 * 64)], "two windows of 64 have as many tokens, of two documents"


def test_keys_by_hand():
    values = np.array([[1.0, 0.0], [0.0, 3.0]])
    assert allocation.budgets_of(values, 10, 0.5).tolist() == [[10, 5], [5, 20]], "5 to each, 20 by their values"
    assert allocation.budgets_of(values, 10, 0.0).tolist() == [[10, 2], [2, 26]], "2 at least, 32 by their values"
    assert allocation.budgets_of(np.ones((2, 2)), 10, 1.0).tolist() == [[10, 10], [10, 10]]


def test_as_many_keys_in_each_arm_and_the_selection_texts_choose(stored):
    study = stored("allocation")
    assert [(row["keys"], row["arm"]) for row in study["rows"]] == [
        (n, arm) for n in (4, 12) for arm in allocation.ARMS
    ]
    heads = np.size(study["shared"]["ranks"])
    controls = {allocation.EVEN: set(), allocation.RANKS: {"even"}, allocation.ABLATION: {"even", "ranks"}}
    for row in study["rows"]:
        assert row["total"] == heads * row["keys"] >= heads * row["attended"] > 0
        assert row["reads_causal"] <= row["reads_kv_least"] <= row["reads_kv_most"] <= 1
        tried = [trial for trial in study["tried"] if (trial["keys"], trial["arm"]) == (row["keys"], row["arm"])]
        assert len(tried) == {allocation.EVEN: 0, allocation.RANKS: 2, allocation.ABLATION: 4}[row["arm"]]
        if tried:
            best = min(tried, key=lambda trial: trial["loss"])
            assert (row["by"], row["evenly"]) == (best["by"], best["evenly"])
        against = {name for name in ("dense", "even", "ranks") if f"against_{name}" in row}
        assert against == {"dense"} | controls[row["arm"]]
    assert len({study["protocol"][name] for name in ("text", "calibrated_on", "selected_on")}) == 3
    assert study["protocol"]["units"] == 6
    assert all(np.sum(share) == pytest.approx(1) for share in study["shared"].values())
    assert set(study["check"]) == {"even", "ranks", "zero", "mean"}


def test_the_smallest_cap_that_passes_is_chosen_for_every_corpus_and_context(stored):
    study = stored("calibration")
    places = [(row["corpus"], row["context"]) for row in study["rows"]]
    assert places == [("novels", 32), ("novels", 64), ("python", 32), ("python", 64)]
    for row in study["rows"]:
        sweep = [
            point for point in study["sweeps"] if (point["corpus"], point["context"]) == (row["corpus"], row["context"])
        ]
        chosen = next((point for point in sweep if point["passes"]), sweep[-1])
        assert (row["cap"], row["beta"]) == (chosen["cap"], chosen["beta"])
        assert row["verdict"] == "too few documents to judge" and row["upper"] is None, "one document has no limit"
        assert row["tokens"] == 64 and len(chosen["bins"]) == 16
        assert all(not point["passes"] for point in sweep if point["beta"] < row["beta"])
    assert [row["context"] for row in study["rank_correlations"]] == [32, 64]
    assert all(-1 <= row["pearson_log"] <= 1 for row in study["rank_correlations"])


NOBODY = {"upper": None, "worst_bin_upper": None}
SIDE = {"upper": 0.005, "worst_bin_upper": 0.01}


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, "passes"),
        ({"holds": False}, "does not pass"),
        ({"passes": False}, "does not pass"),
        ({"holds": None, "report": NOBODY}, "too few documents to judge"),
        ({"report": SIDE | {"worst_bin_upper": None}}, "too few documents to judge"),
        ({"passes": False, "select": NOBODY}, "too few documents to judge"),
    ],
)
def test_too_few_documents_are_no_failure(changed, verdict):
    assert verdict_of({"passes": True, "holds": True, "select": SIDE, "report": SIDE} | changed) == verdict
