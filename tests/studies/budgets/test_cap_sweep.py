"""Sweeping the cap of CSA: bins and the choice by hand, equality with the masked path, texts that it must not see."""

import json

import numpy as np
import pytest
import torch

from analysis.commands.budgets import Calibrate, CapSweep
from analysis.declaration.undeclared import Undeclared
from analysis.errors import BadSetting, BadText
from analysis.methods import METHODS
from analysis.metrics.budgets import reads
from analysis.metrics.quality import token_losses
from analysis.metrics.sparsity import ReadCounter
from analysis.models import load_model
from analysis.runs.caps import chosen_cap, judged, limits_of, summary, verdict
from analysis.seam.attention import apply
from analysis.seam.calls import Call
from analysis.studies.budgets import cap_rows
from analysis.studies.budgets.cap_rows import (
    Counting,
    check_caps,
    compare_losses,
    counted_reads,
    one_side,
    sweep,
    two_sides,
    units_of,
)
from analysis.studies.budgets.recipes import policy_for
from analysis.studies.text.calibration import halves, whole_windows
from tests.made.calibrated import text
from tests.made.tiny import LAYERS, tiny as tiny_family, token_ids


@pytest.fixture(scope="module")
def tiny(ask, context, home):
    """The model, with a policy calibrated on the first half of text 1."""
    ask(Calibrate, text(1), window=32, tokens=320, beta=2.0, caps=[])
    return context.model(str(home / "tiny"))


def test_the_last_bin_of_a_window_of_1024_tokens():
    dense = np.zeros((2, 1023))
    losses = dense + 0.001
    losses[:, 945:1008] = 0.5
    row = compare_losses(losses, dense)
    assert len(row["bins"]) == 16 and {part["last"] - part["first"] for part in row["bins"]} == {63}
    assert (row["worst_bin"], row["worst_bin_first"], row["worst_bin_last"], row["worst_bin_n"]) == (15, 945, 1008, 126)
    assert row["worst_bin_difference"] == pytest.approx(np.expm1(0.5))
    assert row["bins"][0]["difference"] == pytest.approx(np.expm1(0.001))
    assert row["worst_bin_change"] == pytest.approx(np.exp(0.5) - 1)
    assert row["difference"] == pytest.approx(np.expm1((0.001 * 960 + 0.5 * 63) / 1023))
    json.dumps(row, allow_nan=False)
    better = np.full((1, 32), 2.0)
    better[0, 4:6] -= 0.3
    better[0, 8:10] += 0.2
    assert compare_losses(better, np.full((1, 32), 2.0))["worst_bin"] == 2, "the worst bin may be one that gets better"


def side(upper, worst, **extra):
    """One side of a row, with its two limits."""
    place = {"worst_bin_first": 945, "worst_bin_last": 1008, "worst_bin_difference": worst - 0.001}
    limits = {"difference": upper - 0.001, "upper": upper, "worst_bin_upper": worst, "units": 8, "unit": "documents"}
    return limits | place | extra


def test_the_choice_by_hand_is_one_sided_and_reported_on_other_texts():
    """The point estimate of a bin may lie below 2% and its limit above: that does not pass. Better never fails."""
    rows = []
    for cap, upper, worst, reported in ((32, 0.05, 0.3, 0.3), (64, 0.004, 0.021, 0), (128, -0.02, 0.0199, 0.031)):
        row = {"cap": cap, "reads_causal": 0.1, "select": side(upper, worst), "report": side(upper, reported)}
        rows.append(row | verdict(row, 0.01, 0.02))
    assert [row["passes"] for row in rows] == [False, False, True] and chosen_cap(rows) == summary(rows)["cap"] == 128
    assert [row["holds"] for row in rows] == [False, True, False] and summary(rows[:2])["cap"] is None
    both = "perplexity may change by up to +5.0% (allowed 1.0%) and positions 945 to 1,007 by up to +30.0%"
    assert rows[0]["fails"].startswith(both) and rows[2]["fails"] is None
    assert rows[1]["fails"] in summary(rows)["sentence"] and "does not hold" in summary(rows)["sentence"]
    loose = judged(rows, 0.01, 0.04)
    assert loose["cap"] == 64 and loose["sweep"][2]["holds"] is True


def test_two_sided_tolerances_by_hand_in_shares_and_in_perplexity():
    """Dense perplexity 10 on average, 4 and 50 at two stretches: limits of -3% to +0.5%, -1% to +1% and -0.4% to +0.8%
    are -0.3 to +0.05, -0.04 to +0.04 and -0.2 to +0.4 in perplexity, and the worst stretch is another one."""
    stretches = [
        {"first": 0, "last": 63, "lower": -0.01, "upper": 0.01, "perplexity_dense": 4.0},
        {"first": 63, "last": 126, "lower": -0.004, "upper": 0.008, "perplexity_dense": 50.0},
    ]
    both = side(0.005, 0.01, lower=-0.03, perplexity_dense=10.0, stretches=stretches)
    row = {"cap": 64, "reads_causal": 0.1, "select": both, "report": None}
    assert verdict(row, 0.01, 0.02)["passes"], "a fall is no rise"
    change = verdict(row, 0.01, 0.02, "change")
    assert change["fails"] == "perplexity may change by −3.0% to +0.5% (allowed ±1.0%)"
    assert verdict(row, 0.03, 0.01, "change")["passes"] and not verdict(row, 0.03, 0.0099, "change")["passes"]
    limits = limits_of(both, "perplexity")
    assert limits.average == pytest.approx((-0.3, 0.05)) and limits.stretch == pytest.approx((-0.2, 0.4))
    assert limits.place == "positions 63 to 125" and limits_of(both, "change").place == "positions 0 to 62"
    assert verdict(row, 0.31, 0.41, "perplexity")["passes"]
    assert "by −0.20 to +0.40 (allowed ±0.39 perplexity)" in verdict(row, 0.31, 0.39, "perplexity")["fails"]
    assert [judged([row], allowed, 0.41, "perplexity")["cap"] for allowed in (0.31, 0.29)] == [64, None]
    earlier = row | {"select": side(0.0, 0.0)}
    assert "measure it again" in verdict(earlier, 0.01, 0.02, "change")["fails"]


def test_limits_are_one_sided_ones_of_the_same_documents_and_too_few_pass_nothing():
    """Student's t of five documents at 95% is 2.132: the limits lie 2.132 standard errors around the mean."""
    losses = np.repeat(np.array([[-0.02], [0.01], [0.0], [0.02], [-0.01]]), 64, 1)
    row = one_side(losses, np.zeros((5, 64)), np.arange(5), np.ones(5, dtype=bool))
    reach = 2.1318 * np.std(losses[:, 0], ddof=1) / np.sqrt(5)
    assert (row["lower"], row["upper"]) == pytest.approx((np.expm1(-reach), np.expm1(reach)), abs=1e-5)
    assert len(row["stretches"]) == 16 and row["stretches"][0]["lower"] == pytest.approx(row["lower"], abs=1e-9)
    few = {"cap": 64, "reads_causal": 0.1, "select": side(0, 0, units=3) | {"upper": None}, "report": None}
    assert verdict(few, 0.01, 0.02) == {"passes": False, "fails": "3 documents are too few for a limit", "holds": None}
    alone = {"cap": 64, "reads_causal": 0.1, "select": side(0, 0), "report": None}
    assert "No text is left" in summary([alone | verdict(alone, 0.01, 0.02)])["sentence"]


def test_the_sides_share_no_text_and_each_limit_is_of_its_own_documents():
    documents = np.array([0, 0, 1, 2, 2, 3, 4])
    report = two_sides(documents)
    assert set(documents[report]) == {3, 4} and set(documents[~report]) == {0, 1, 2}
    assert two_sides(np.zeros(5)).tolist() == [False, False, False, True, True]
    eight = [set(np.arange(8)[two_sides(np.arange(8), fewest)].tolist()) for fewest in (0, 5)]
    assert eight == [{4, 5, 6, 7}, {3, 4, 5, 6, 7}], "five of eight give an interval, three choose"
    assert two_sides(np.arange(3), 5).tolist() == [False, True, True]
    assert units_of(documents) is None, "five texts on each side make documents the units"
    assert units_of(np.arange(10)) is not None and units_of(np.arange(9)) is None
    # Five documents of one window without a change are a limit of 0 on the selection side; the other five report.
    dense, documents = np.zeros((10, 64)), np.arange(10)
    losses = dense.copy()
    losses[5:] += 0.05
    losses[5:, :4] += np.linspace(0, 0.1, 5)[:, None]
    select, report = (one_side(losses, dense, documents, documents // 5 == half) for half in (0, 1))
    assert (select["upper"], select["units"], select["unit"]) == (0, 5, "documents")
    assert report["worst_bin_first"] == 0 and report["worst_bin_upper"] > report["worst_bin_difference"] > 0.05


def test_reads_have_every_denominator():
    """Two layers of four heads, two of which share a key-value head, over three windows of four tokens."""
    counted = Counting(shape=(2, 4), read=60, least=36, most=48)
    assert counted_reads([counted], 2, 3, 4) == {
        "attended": 60 / 96,
        "reads_causal": 60 / 240,
        "reads_full": 60 / 384,
        "kv_read": (1 + 36 / 120) / 2,
        "reads_kv_least": 36 / 120,
        "reads_kv_most": 48 / 120,
    }
    assert counted_reads([counted, counted], 2, 3, 4) == counted_reads([counted], 2, 3, 4), "a mean over seeds"


def test_keys_of_key_value_heads_are_counted_from_queries_and_from_masks():
    """The kernel says how many keys each query read: no more than there are before it can be different ones."""
    method, key = Counting(), torch.zeros(1, 2, 3, 8)
    call = Call(0, torch.zeros(1, 4, 3, 8), key, key, 1.0, 0, None, None)
    method.note(call, torch.tensor([[[1, 2, 3], [1, 1, 1], [1, 1, 2], [1, 1, 2]]]))
    assert (method.read, method.least, method.most) == (17, (1 + 2 + 3) + (1 + 1 + 2), (1 + 2 + 3) + (1 + 2 + 3))
    model, ids, counter = load_model(tiny_family("llama")), token_ids(1, 40), ReadCounter(40)
    method = Counting(budgets=(2, 7, 15, 40) * LAYERS, shape=(LAYERS, 4))
    with torch.no_grad(), apply(model, method, watch=counter):
        model.lm(ids, use_cache=False)
    exact, masked = counter.reads(method), counted_reads([method], model.num_kv_heads, 1, 40)
    assert masked["reads_kv_least"] == masked["reads_kv_most"] == exact.reads_kv
    method.restart()
    with torch.no_grad(), apply(model, method, kernels=True):
        model.lm(ids, use_cache=False)
    bounds = counted_reads([method], model.num_kv_heads, 1, 40)
    assert bounds["reads_kv_least"] < exact.reads_kv < bounds["reads_kv_most"]
    assert bounds == pytest.approx(reads([[2, 7, 15, 40]] * LAYERS, None, 40, model.num_kv_heads), rel=1e-12)


def test_a_sweep_equals_the_masked_path_and_counts_what_it_reads(context, tiny):
    windows, budgets = whole_windows(tiny, [("", text(2))], 32, 128), policy_for(context, tiny).budgets
    rows = sweep(context, tiny, windows, budgets, [64, 3, 1, 3])
    assert [row["cap"] for row in rows] == [1, 3, 64]
    for row in rows:
        method = METHODS["csa"](budgets=tuple(budgets.ravel().tolist()), shape=budgets.shape, cap=row["cap"])
        with apply(tiny, method):
            losses = np.stack([token_losses(tiny, torch.as_tensor(ids)[None])[0] for ids in windows])
        assert row["perplexity"] == pytest.approx(np.exp(losses.mean()), rel=1e-5)
        for name, share in reads(budgets, row["cap"], 32, tiny.num_kv_heads).items():
            assert row[name] == pytest.approx(share, rel=0.01), "ties apart"
    shares = [row["reads_causal"] for row in rows]
    assert shares == sorted(shares) and abs(rows[0]["difference"]) > 1e-4


@pytest.mark.parametrize("budget, cap", [(64, 64), (1000, 32), (32, 500)])
def test_enough_keys_change_nothing_and_pass(context, tiny, budget, cap):
    windows = whole_windows(tiny, [("", text(2))], 32, 256)
    (row,) = sweep(context, tiny, windows, np.full((tiny.num_layers, tiny.num_heads), budget), [cap])
    assert abs(row["difference"]) < 1e-5 and abs(row["worst_bin_difference"]) < 1e-4 and row["passes"]
    assert row["reads_causal"] == row["kv_read"] == 1


def test_the_verb_takes_a_policy_made_by_hand_and_can_be_stored(ask, tiny, store):
    recipe = {"total": 120, "edits": [{"layer": 0, "set": 30}], "keep_total": False}
    result = ask(CapSweep, texts=[text(2), text(3)], policy=recipe, caps=[2, 40], window=32, tokens=96)
    numbers = json.loads(json.dumps(result.numbers, allow_nan=False))
    assert numbers["budgets"][0] == [30] * 4 and numbers["windows"] == 3 and numbers["window"] == 32
    assert len(result.tables["bins"]) == 32 and list(result.tables["rows"]["cap"]) == [2, 40]
    run = store.open(store.put(Undeclared("cap-sweep", {"model": "tiny"}), result, numbers["protocol"], 1.0).id)
    assert run.numbers["sweep"] == numbers["sweep"] and len(run.table("bins")) == 32


def test_of_a_text_that_calibrated_by_half_the_other_half_is_read(ask, context, tiny):
    result = ask(CapSweep, texts=[text(1)], caps=[4], window=32, tokens=64)
    windows = whole_windows(tiny, [("", halves(text(1))[1])], 32, 64)
    budgets = policy_for(context, tiny).budgets
    assert result.numbers["sweep"] == sweep(context, tiny, windows, budgets, [4], report=two_sides(np.zeros(2)))
    ask(Calibrate, texts=[text(4), text(5)], window=32, tokens=64, caps=[], name="whole")
    with pytest.raises(BadSetting, match="text 1 calibrated the policy whole, which must not be measured on it"):
        ask(CapSweep, texts=[text(3), text(4)], policy="whole", caps=[4], window=32)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"caps": []}, "The caps are"),
        ({"caps": [4, 0]}, "The caps are"),
        ({"texts": []}, "No text was named"),
        ({"window": 65}, "A window of text is 65"),
        ({"policy": "other"}, "no policy other"),
        ({"policy": {"total": 3}}, "below the floor"),
        ({"policy": {"total": 99, "beta": 1}}, "both say how many keys"),
        ({"policy": {"size": 3}}, "is no policy"),
    ],
)
def test_bad_input_is_refused_before_a_pass(ask, tiny, monkeypatch, arguments, message):
    monkeypatch.setattr("analysis.studies.budgets.cap_sweep.sweep", lambda *_: pytest.fail("a pass was made"))
    with pytest.raises((BadSetting, BadText), match=message):
        ask(CapSweep, **{"texts": [text(2)], **arguments})


def test_caps_come_in_order_and_once_and_one_above_all_budgets_is_not_computed_again(context, tiny, monkeypatch):
    assert check_caps([64, 32, 64]) == [32, 64]
    passes, real = [], cap_rows.window_losses
    monkeypatch.setattr(cap_rows, "window_losses", lambda *a: passes.append(a[-1]) or real(*a))
    rows = sweep(context, tiny, whole_windows(tiny, [("", text(2))], 32, 32), np.full((3, 4), 7), [4, 8, 16, 512])
    assert passes == ["dense", "cap 4", "cap 8"] and [row["cap"] for row in rows] == [4, 8, 16, 512]
    assert rows[1]["perplexity"] == rows[3]["perplexity"]
