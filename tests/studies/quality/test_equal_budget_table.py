"""The equal-budget table on a tiny model: budgets met and missed, panels, stopped and gone on with."""

import json

import pytest

from analysis.corpus import sample_texts
from analysis.errors import BadSetting, Cancelled
from analysis.studies import NAMED
from analysis.studies.context import Context
from analysis.studies.quality.budget_arms import ENTRIES, RANDOM
from analysis.studies.quality.budget_shown import panels, sentence
from analysis.studies.quality.budget_table import SHARES
from tests.made.evaluating import tiny_models
from tests.made.studied import asker

LABELS = [entry.label for entry in ENTRIES]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a tiny model of 64 tokens and a corpus of one domain."""
    home = tiny_models(tmp_path_factory.mktemp("equal"))
    (home / "corpus").mkdir()
    for name, (_, text) in sample_texts().items():
        (home / "corpus" / f"{name}.txt").write_text(text[:1200])
    return home


@pytest.fixture(scope="module")
def ask(home):
    """`ask(progress, **arguments)` -> Result; what is done stays in one folder."""
    given = {"corpus": str(home / "corpus"), "output": str(home / "e.json"), "windows": 2, "router": "k4-top1"}
    return asker(NAMED["equal-budget"], home, **given, length=64)


@pytest.fixture(scope="module")
def stored(ask, home):
    """What the study leaves, after it was stopped once."""

    def stop(fraction, stage):
        if "5%: Quest" in stage:
            raise Cancelled("stop")

    with pytest.raises(Cancelled):
        ask(stop)
    stages = []
    result = ask(lambda fraction, stage: stages.append(stage))
    assert not any("StreamingLLM" in stage for stage in stages) and any("SparQ" in stage for stage in stages)
    assert len(result.tables["rows"]) == len(LABELS) * len(SHARES)
    return json.loads((home / "e.json").read_text(), parse_constant=pytest.fail)


def test_every_method_at_every_share(stored):
    assert [(row["label"], row["share"]) for row in stored["rows"]] == [(a, share) for a in LABELS for share in SHARES]
    for row in stored["rows"]:
        assert row["target"] == pytest.approx(row["share"] * 65 / 2) and row["tokens"] in (64, 128)
        assert row["off"] == pytest.approx(row["attended"] / row["target"] - 1)
        assert (row["perplexity"] is not None) == row["reached"]
        if row["reached"]:
            gone = row["perplexity"] / row["perplexity_dense"] - 1
            assert row["difference"] == pytest.approx(gone, abs=1e-4), row["label"]
            assert row["difference_low"] <= row["difference"] <= row["difference_high"]
    met = {row["label"] for row in stored["rows"] if row["reached"] and row["share"] == 0.5}
    assert {"StreamingLLM", "Oracle top-k", "Calibrated Sparse Attention", "SparQ", f"Focus, {RANDOM}"} <= met
    fetched = {row["label"]: row["kv_read"] / row["reads_causal"] for row in stored["rows"] if row["share"] == 0.5}
    assert fetched["StreamingLLM"] == pytest.approx(1) and fetched["Oracle top-k"] > 1.4 and fetched["Quest"] > 1


def test_windows_with_sinks_by_hand(stored):
    """Four sinks and a window, n keys in all, over 64 queries: 64 n - n (n - 1) / 2 pairs."""
    rows = {row["share"]: row for row in stored["rows"] if row["label"] == "StreamingLLM"}
    for share in (0.5, 0.25):
        n = rows[share]["value"] + 4
        assert rows[share]["attended"] == pytest.approx((64 * n - n * (n - 1) / 2) / 64)
    assert not rows[0.05]["reached"], "sinks and the token itself are more than 1.6 keys"


def test_figure_1_leaves_out_what_missed_its_budget(stored):
    quality, fetched = stored["panels"]
    assert quality["up"] == "low" and quality["x_values"] == [2, 4, 10, 20] and "up" not in fetched
    missed = {(row["label"], row["share"]) for row in stored["rows"] if not row["reached"]}
    for line in quality["series"]:
        for x, y, low in zip(quality["x_values"], line["y"], line["low"] or [None] * 4, strict=True):
            assert (y is None) == ((line["name"], 1 / x) in missed) and (low is None) == (y is None)
    assert panels(stored["rows"]) == stored["panels"] and sentence(stored["rows"]) == stored["sentence"]
    assert "At 50% of the reads" in stored["sentence"] and stored["protocol"]["command"].endswith("--seed 0")


def test_a_part_comes_again_and_bad_input_is_refused(stored, ask, home):
    for kept, now in (
        NAMED["equal-budget"].recheck(stored, context=Context(state=home / "state", browser=False)).values()
    ):
        assert now == pytest.approx(kept, rel=1e-4)
    for given, said in (
        ({"length": 65}, "window of text"),
        ({"windows": 0}, "number of windows"),
        ({"rows": "poems"}, "no domain"),
    ):
        with pytest.raises(BadSetting, match=said):
            ask(**given)
