"""The equal-budget table on a tiny model: budgets met and missed, panels, stopped and gone on with."""

import json

import pytest
import torch

from analysis.corpus import sample_texts
from analysis.errors import BadSetting, Cancelled
from analysis.groups.router import FocusRouter
from analysis.methods import METHODS
from analysis.models import load_model
from analysis.studies import NAMED
from analysis.studies.text.calibration import split
from lab.equal.entries import ENTRIES, RANDOM, Budget, Dealt
from lab.equal.equal_table import SHARES, means, panels, sentence, somewhere
from tests.made.evaluating import tiny_models
from tests.made.studied import asker, part_again

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
    usual = {
        "corpus": str(home / "corpus"),
        "output": str(home / "e.json"),
        "windows": 2,
        "select": 1,
        "calibrate": 2,
        "router": "k4-top1",
    }
    return asker(NAMED["equal-budget"], home, **usual, length=64)


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
            assert (row["unit"], row["units"], row["difference_low"]) == ("documents", 1, None), "no bar from one text"
            assert len(row["points"]) == row["units"]
    met = {row["label"] for row in stored["rows"] if row["reached"] and row["share"] == 0.5}
    assert {"StreamingLLM", "Oracle top-k", "Calibrated Sparse Attention", "SparQ", f"Focus, {RANDOM}"} <= met
    fetched = {row["label"]: row["kv_read"] / row["reads_causal"] for row in stored["rows"] if row["share"] == 0.5}
    assert fetched["StreamingLLM"] == pytest.approx(1) and fetched["Oracle top-k"] > 1.4 and fetched["Quest"] > 1


def test_the_row_says_what_was_searched_and_what_calibrated_it(stored):
    """All fitted states have the same texts and tokens, and every free setting was tried, visited beside the window."""
    rows = {(row["label"], row["share"]): row for row in stored["rows"]}
    fitted = {rows[label, 0.5]["calibration_tokens"] for label in FITTED}
    assert fitted == {2 * 64} and {rows[label, 0.5]["calibration_texts"] for label in FITTED} <= {1, 2}
    buckets = rows["Bucket routing", 0.5]
    assert buckets["field"] == "window" and "visited" in buckets["settings"] and buckets["searched"] > 2
    assert rows["Focus, hard groups", 0.5]["calibrated"] == "k4-top1, not trained"
    assert rows["SparQ", 0.5]["calibrated"] == "nothing" and "local" in rows["SparQ", 0.5]["said"]
    draws = {row["label"]: row["seeds"] for row in stored["rows"] if row["reached"]}
    assert draws["MagicPIG"] == draws["Focus, the same sizes at random"] == 3 and draws["SparQ"] == 1


FITTED = ("Bucket routing", "Routing Transformer", "MagicPIG", "Calibrated Sparse Attention")


def test_positions_in_the_cache_and_means_of_blocks_are_lines_of_their_own(stored):
    """On equal terms with the other line of their method: the same settings are tried, and only one thing differs."""
    budget = Budget(128, 0.25, 32)
    by_label = {entry.label: entry for entry in ENTRIES}
    for name, variant, fixed in (
        ("StreamingLLM", "cache positions", {"positions": "cache"}),
        ("MagicPIG", "means of blocks", {"centre": "blocks"}),
    ):
        plain, variant_entry = by_label[name], by_label[f"{name}, {variant}"]
        assert variant_entry.free(budget) == [settings | fixed for settings in plain.free(budget)]
        assert variant_entry.seeds == plain.seeds
    rows = {(row["label"], row["share"]): row for row in stored["rows"] if row["method"] == "streaming_llm"}
    for share in SHARES:
        original, cache = rows["StreamingLLM", share], rows["StreamingLLM, cache positions", share]
        assert cache["settings"]["positions"] == "cache" and cache["reached"] == original["reached"]
        if cache["settings"]["n_sink"] == original["settings"]["n_sink"] and original["reached"]:
            assert cache["attended"] == original["attended"] and cache["perplexity"] != original["perplexity"]
    assert rows["StreamingLLM", 0.25]["reached"]


def test_a_line_of_the_shorter_context_alone_has_no_mean_and_says_so(stored):
    (long,) = (entry.label for entry in ENTRIES if entry.short)
    twice = [row | {"context": size} for row in stored["rows"] for size in (64, 128)]
    rows = [row for row in twice if row["label"] != long or row["context"] == 64]
    (reason,) = somewhere(rows)
    assert reason.startswith(f"{long} takes long and was measured in contexts of 64 tokens only")
    assert not somewhere(twice) and long not in {row["label"] for row in means(rows)}
    assert long not in sentence(rows).split("Left out where they miss")[0]
    drawn = {panel["title"]: {line["name"] for line in panel["series"]} for panel in panels(rows)[:2]}
    assert [long in names for names in drawn.values()] == [True, False]


def test_what_is_tried_and_on_which_documents():
    """Half of the budget given to buckets by fiat squeezed the window to a token: fewer buckets are tried as well."""
    (entry,) = (entry for entry in ENTRIES if entry.method == "bucket_routing")
    for share in SHARES:
        tried = {settings["visited"] for settings in entry.free(Budget(share * 512, share, 32))}
        assert 1 in tried and max(tried) <= max(1, round(share * 32))
    assert {settings["visited"] for settings in entry.free(Budget(128, 0.25, 32))} == {1, 2, 4, 8}
    learn, choose, report = split(["a", "b", "c"], ["d"])
    assert [text for _, text in learn] == ["a", "c"] and [text for _, text in choose] == ["b"]
    assert [text for _, text in report] == ["d"]
    learn, choose, _ = split(["one half and another"], ["d"])
    assert learn[0][1] + choose[0][1] == "one half and another", "a single document is cut in two"


def test_the_same_sizes_dealt_anew(home):
    """Every token's groups are another token's; how many tokens a group has stays."""
    model = load_model(str(home / "tiny"))
    router = FocusRouter(model.num_layers, model.width, groups=4, window=4, n_sink=1, seed=3)
    hidden = torch.randn(2, 20, model.width)
    plain, dealt = (
        method.token_features(1, hidden, torch.ones(2, 20, dtype=torch.bool))
        for method in (METHODS["focus"].build(router), Dealt.build(router, dealt=2))
    )
    assert plain.sum(1).tolist() == dealt.sum(1).tolist() and not torch.equal(plain, dealt)


def test_windows_with_sinks_by_hand(stored):
    """Sinks and a window, n keys in all, over 64 queries: 64 n - n (n - 1) / 2 pairs."""
    rows = {row["share"]: row for row in stored["rows"] if row["label"] == "StreamingLLM"}
    for share in (0.5, 0.25):
        n = rows[share]["value"] + rows[share]["settings"]["n_sink"]
        assert rows[share]["attended"] == pytest.approx((64 * n - n * (n - 1) / 2) / 64)


def test_figure_1_leaves_out_what_missed_its_budget(stored):
    quality, fetched = stored["panels"]
    assert quality["up"] == "low" and quality["x_values"] == [2, 4, 10, 20] and "up" not in fetched
    missed = {(row["label"], row["share"]) for row in stored["rows"] if not row["reached"]}
    for line in quality["series"]:
        assert line["low"] is None, "one text has no bar"
        for x, y in zip(quality["x_values"], line["y"], strict=True):
            assert (y is None) == ((line["name"], 1 / x) in missed)
    assert panels(stored["rows"]) == stored["panels"] and sentence(stored["rows"]) == stored["sentence"]
    assert "At 50% of the reads" in stored["sentence"] and stored["protocol"]["command"].endswith("--seed 0")


def test_a_part_comes_again_and_bad_input_is_refused(stored, ask, home):
    assert part_again(NAMED["equal-budget"], stored, home)
    for arguments, message in (
        ({"length": 65}, "window of text"),
        ({"rows": "poems"}, "no domain"),
    ):
        with pytest.raises(BadSetting, match=message):
            ask(**arguments)
