"""What the studies of Focus store of a tiny model: which arms, and how their numbers belong together."""

import json
import math

import numpy as np
import pytest

from analysis.groups.dominance import balanced_largest_share
from analysis.studies.stored.measured import READINGS
from lab.focus.dominance import PAPER_SHARE, ROWS, TUNED, WEIGHTS
from lab.focus.table5 import AGAINST, ARMS


def rows_by(stored: dict, *keys: str) -> dict:
    """The rows of a study by what names them."""
    return {tuple(row[key] for key in keys): row for row in stored["rows"]}


def test_groups_beside_their_controls(stored):
    study = stored("groups")
    names = [row["arm"] for row in study["rows"]]
    assert {"dense", "window 8", "window 128", "random tokens", "random centroids", "k-means", *READINGS} <= set(names)
    assert study["equal_pairs"]["arm"] in names and study["windows"] == 9 and study["n_sink"] == 1
    assert {row["arm"]: len(row["seed_losses"] or ()) for row in study["rows"]}["random centroids"] == 3
    assert all(row["units"] == 6 and row["low"] is not None for row in study["comparisons"])
    assert all(len(losses) == 9 for losses in study["losses"].values()) and len(study["losses"]) >= 18
    assert len(study["warnings"]) == 2, "its router was trained elsewhere, with another window"
    assert set(study["check"]) == {"dense", f"window {study['window']}", "trained", "random tokens 0"}


def test_only_literal_membership_reads_the_future_in_every_form(stored):
    study = stored("causality")
    rows = rows_by(study, "gate", "reading", "membership")
    assert len(rows) == 10
    for (gate, reading, membership), row in rows.items():
        assert row["reads_future"] == (membership == "literal") == (row["moved"] > 1e-4)
        assert row["predictions_changed"] == 0 or membership == "literal"
        if reading == "soft":
            assert row["pairs_share"] == 1.0 and (row["smallest_gate"] >= 0.5) == (gate == "literal")
            assert rows[None, "hard", membership]["smallest_gate"] == 0 <= row["smallest_gate"] <= row["mean_gate"]
    for row in study["literal_minus_causal"]:
        literal, causal = (rows[row["gate"], row["reading"], rule]["loss"] for rule in ("literal", "causal"))
        assert row["mean"] == pytest.approx(literal - causal, abs=1e-6) and row["units"] == 6
        assert row["low"] <= row["high"]
    assert len(study["group_agreement"]) == 3 and 0 < study["prediction_agreement"] <= 1


def test_the_price_of_a_step(stored):
    study = stored("step-cost")
    dense, *gates = study["rows"]
    assert dense["step"] == "dense" and dense["times"] == 1.0 and len(gates) == 6
    assert all(row["low"] <= row["seconds"] <= row["high"] for row in study["rows"])
    assert set(study["met"]) == {"log", "literal", "memory"}


def test_pruning_one_layer_alone(stored):
    study = stored("pruned")
    assert [row["layer"] for row in study["rows"]] == [0, 1, 2] and len(study["panels"]) == 6
    for row in study["rows"]:
        assert row["loss_groups_low"] <= row["loss_groups"] <= row["loss_groups_high"]
        apart = row["loss_groups"] - row["loss_random"]
        assert row["groups_minus_random"] == pytest.approx(apart, abs=1e-6)
        assert row["candidates_groups"] < row["candidates_dense"] == 33 / 2
        assert abs(row["candidates_window"] - row["candidates_groups"]) < 1
    assert {"dense", "groups in layer 2", "pruned by window"} <= set(study["check"])


def test_from_half_the_groups_on_all_is_read(stored):
    study = stored("top")
    rows = rows_by(study, "router", "k")
    assert list(rows) == [*(("k4-top1", k) for k in (1, 2, 3, 4)), ("k4-top2", 2)]
    for (_, k), row in rows.items():
        assert row["equals_dense"] == (k > 2) == (row["pairs_share"] == 1.0) == (row["furthest"] < 1e-3)
        assert ("against_random" in row) == (k <= 2) and row["formula"] == 4 / k
        assert row["distant_share"] <= row["pairs_share"] <= 1 and row["ideal"] == 1 / row["pairs_share"]
        if k <= 2:
            assert row["window_pairs_share"] == pytest.approx(row["pairs_share"], abs=0.04)
            apart = row["against_dense"] - row["random_against_dense"]
            assert row["against_random"] == pytest.approx(apart, abs=1e-6)
    assert rows["k4-top1", 1]["pairs_share"] < rows["k4-top1", 2]["pairs_share"]
    paper = {line["name"]: line["y"] for line in study["panels"][0]["series"] if line["paper"]}
    assert paper["GPT-2 124M, paper"] == pytest.approx([82.9 / 42.8, 41.3 / 42.8, 47.2 / 42.8, 47.2 / 42.8])


def test_every_row_is_trained_in_both_phases(stored):
    study = stored("dominance")
    assert [row["row"] for row in study["rows"]] == list(ROWS)
    tried = {trial["weight"]: trial["share"] for trial in study["weights"]}
    nearest = min(tried, key=lambda weight: abs(tried[weight] - PAPER_SHARE))
    (tuned,) = (row for row in study["rows"] if row["row"] == TUNED)
    assert tuned["settings"]["balance_weight"] == nearest and list(tried) == list(WEIGHTS[: len(tried)])
    assert study["even"] == 0.25 and study["chance"] == balanced_largest_share(128, 4) > 0.25
    for row in study["rows"]:
        for phase in "12":
            assert 0.25 <= row[f"share_{phase}"] <= row[f"worst_{phase}"] <= 1 and 1 <= row[f"rank_{phase}"] <= 16
            assert 0 <= row[f"stability_{phase}"] <= 1 and row[f"hard_{phase}"] > 0
            for name in ("share", "worst"):
                values = row[f"{name}_{phase}_of_seeds"]
                assert len(values) == row["seeds"] and row[f"{name}_{phase}"] == pytest.approx(np.mean(values))
        assert row["drift_1"] == pytest.approx(0, abs=1e-6) and row["drift_2"] > 0, "the base is frozen in phase 1"
    for point in study["curves"]:
        assert point["share"] == pytest.approx(np.mean(point["shares"]), abs=1e-4)
    assert {point["row"] for point in study["curves"]} == set(ROWS) and {p["step"] for p in study["curves"]} == {0, 3}
    last = [p for p in study["curves"] if (p["row"], p["phase"], p["step"]) == ("sinkhorn", 2, 3)]
    by_layer = {point["layer"]: point["share"] for point in last}
    assert by_layer.pop(-1) == pytest.approx(np.mean(list(by_layer.values())), abs=1e-4)


def test_cells_are_trained_once(stored):
    study = stored("ablations")
    rows = rows_by(study, "factor", "value")
    assert [row["default"] for row in rows.values()] == [False, True, False, False, True]
    default = rows["groups", 8]
    shared = {key for key in default if not key.startswith("paper")} - {"factor", "value"}
    assert all(default[key] == rows["iterations", 10][key] for key in shared)
    assert rows["iterations", 3]["random_tuned"] == default["random_tuned"] != rows["groups", 4]["random_tuned"]
    for row in rows.values():
        for phase in ("centroid", "tuned"):
            assert 1 / row["groups"] <= row[f"share_{phase}"] <= row[f"worst_{phase}"] <= 1
            low, high = (row[f"{phase}_against_random_{end}"] for end in ("low", "high"))
            assert (low is None and high is None) or low <= high, "of texts that are nearly all alike there is none"
        assert row["perplexity_tuned"] != row["perplexity_centroid"]
        assert 0 <= row["labels_kept_lowest"] <= row["labels_kept"] <= row["labels_kept_highest"] <= 1
    widest = rows["window", 64]
    assert widest["pairs_share"] == 1 and widest["perplexity_centroid"] == pytest.approx(study["dense"]["perplexity"])
    assert widest["perplexity_tuned"] == pytest.approx(widest["full_tuned"]), "it is tuned with full attention"
    assert len(study["notes"]) == 4 and len(study["panels"]) == 9, "one note says that 64 tokens are all of a window"
    assert list(study["check"]) == ["centroids", "fine-tuned", "random groups", "full attention"]


def test_every_arm_in_every_domain(stored):
    study = stored("finetuning")
    rows = rows_by(study, "domain", "arm")
    assert list(rows) == [(domain, arm) for domain in ("novels", "python", "wikitext") for arm in ARMS]
    for (domain, arm), row in rows.items():
        assert row["learned"] == pytest.approx(row["loss"] - math.log(row["before"]), abs=1e-5) and row["learned"] < 0
        assert row["gap"] == pytest.approx(row["loss"] - row["train"], abs=1e-6)
        assert (row["pairs_share"] == 1.0) == (arm == "full attention")
        if arm.startswith("Focus"):
            assert 0 <= row["labels_kept_lowest"] <= row["labels_kept"] <= row["labels_kept_highest"] <= 1
            assert 0 < row["labels_chance"] < 1 and 0 < row["purity_before"] < 1 and 0 < row["purity_after"] < 1
        else:
            assert row["labels_kept"] is None, "it has no groups"
        for key, control in AGAINST.items():
            if control != arm:
                assert row[key] == pytest.approx(row["loss"] - rows[domain, control]["loss"], abs=1e-6)
                assert row[f"{key}_low"] is None, "three windows are one unit"
    protocol, of_domains = study["protocol"], study["protocol"]["domains"].values()
    assert protocol["units"] == min(facts["units"] for facts in of_domains)
    assert protocol["tokens"] == sum(facts["windows"] for facts in of_domains) * protocol["window"]
    assert list(study["check"]) == ["router", *ARMS]
    assert len({json.dumps(losses) for losses in study["check"].values()}) == 6, "every arm is trained in its own way"


def test_every_length_reads_the_same_tokens(stored):
    study = stored("lengths")
    rows = rows_by(study, "length", "k")
    assert list(rows) == [(size, k) for size in (16, 32, 64, 128) for k in (1, 2)]
    assert {row["length"] * row["windows"] for row in rows.values()} == {640}
    for (size, _), row in rows.items():
        assert row["extrapolated"] == (size > 64) and 0 < row["pairs_share"] < 1
        assert row["against_dense_low"] <= row["against_dense"] <= row["against_dense_high"]
        assert 0.25 <= row["largest_share"] <= 1 and row["perplexity_literal"] > 1
    assert rows[16, 1]["perplexity_dense"] == rows[16, 2]["perplexity_dense"]
    assert rows[64, 1]["pairs_share"] < rows[64, 2]["pairs_share"]
    assert "--rows 16,32,64,128" in study["protocol"]["command"]


def test_three_ways_to_train_at_equal_tokens(stored):
    study = stored("pretraining")
    rows = rows_by(study, "trained", "reading")
    assert {trained for trained, _ in rows} == {"dense", "focus", "random groups"} and len(rows) == 17
    for (_, reading), row in rows.items():
        assert row["perplexity_lowest"] <= row["perplexity"] <= row["perplexity_highest"]
        assert (row["pairs_share"] == 1) == (reading == "dense" or reading.startswith("soft")), reading
        assert row["against_dense_low"] <= row["against_dense"] <= row["against_dense_high"]
    assert rows["dense", "dense"]["against_dense"] == 0
    first = {(point["trained"], point["seed"]): point["loss"] for point in study["curves"]}
    assert len(first) == 6 == len(set(first.values()))


def test_every_number_of_steps_is_trained_and_read(stored):
    study = stored("focus-printed")
    rows = study["rows"]
    assert [row["steps"] for row in rows] == [1, 2, 4, 8] and rows[-1]["tokens"] == 512
    assert rows[0]["soft_gained"] is None and set(rows[0]) == set(rows[-1])
    apart = np.log(rows[3]["perplexity_soft"] / rows[2]["perplexity_soft"])
    assert rows[3]["soft_gained"] == pytest.approx(apart, abs=1e-6)
    assert f"hard groups the loss changed by {rows[3]['hard_gained']:+.4f}".replace("-", "−") in study["sentence"]
    for row in rows:
        assert row["hard_against_dense"] == pytest.approx(np.log(row["perplexity_hard"] / study["dense"]), abs=1e-6)
        assert row["pairs_share"] > 0.5, "two of four groups share most pairs"
    assert study["protocol"]["rate"] == min(study["tried"], key=lambda tried: tried["choosing"])["rate"]
    assert study["protocol"]["units"] < 6, "half of the documents chose the rate"


def test_what_the_study_of_groups_measured_is_not_measured_again(ask, tmp_path):
    stages, work = [], str(tmp_path / "work")
    ask("causality", work=work, window=8)
    ask("groups", lambda fraction, stage: stages.append(stage), work=work, window=8)
    measured = {stage.split(", window ")[0] for stage in stages if " of 9" in stage}
    assert not measured & {"dense", "trained"} and any(stage.startswith("window 8,") for stage in stages)


def test_learned_positions_end(ask, tmp_path):
    from transformers import GPT2LMHeadModel

    from analysis.errors import BadSetting
    from tests.made.tiny import CONFIGS
    from tests.made.tiny_tokenizer import byte_level

    config = CONFIGS["gpt2"]()
    config.n_positions, config.vocab_size = 32, len(byte_level())
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "gpt2")
    byte_level().save_pretrained(tmp_path / "gpt2")
    with pytest.raises(BadSetting, match="gpt2 has learned positions for 32 tokens and reads no longer text"):
        ask("lengths", model=str(tmp_path / "gpt2"), rows=None)
