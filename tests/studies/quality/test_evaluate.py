"""Methods against dense on a text: exact where they must be equal, by hand and in float64 where they are not."""

import json
import math

import numpy as np
import pytest
import torch

from analysis.corpus import sample_texts, tokenize
from analysis.errors import BadSetting, BadText
from analysis.methods import METHODS
from analysis.metrics.quality import perplexity, position_bins
from analysis.runs import RunStore
from analysis.seam.attention import apply
from analysis.studies.quality.evaluate import evaluate
from tests.made.evaluating import TEXT, evaluator, one

ROW = "method perplexity low high bits_per_byte kl_mean kl_p99 same_top1 reads_causal reads_full kv_read".split()
ROW += "worst_bin_difference bins difference".split()

READY = [  # focal_learned needs trained weights, others a prompt and what follows it
    name for name, made in METHODS.items() if made.saves == "reads" and name != "focal_learned"
]


@pytest.fixture(scope="module")
def ask(context, home):
    """`ask(methods, text, model="tiny", **arguments)` -> Result."""
    return evaluator(context, home)


def logits(context, home, method, window, model="tiny"):
    """float64 log-probabilities [T - 1, V] of one window, computed apart from the study."""
    lm = context.model(str(home / model))
    with torch.no_grad(), apply(lm, method, watch=lambda block, mass: None):
        found = lm.lm(torch.as_tensor(window)[None], use_cache=False).logits[0, :-1]
    return torch.log_softmax(found.double(), -1).numpy()


# --- where reading is equal, numbers are --------------------------------------------------------------------------


def test_dense_against_dense_is_exactly_equal(ask, context, home):
    result = ask([{"name": "dense"}], window=20)
    row, losses = one(result), result.tables["losses"]
    assert row["difference"] == row["kl_mean"] == row["kl_p99"] == row["worst_bin_difference"] == 0
    assert row["same_top1"] == row["reads_causal"] == row["kv_read"] == 1 and row["reads_full"] == 21 / 40
    assert (losses[["difference", "kl"]] == 0).all().all()
    lm = context.model(str(home / "tiny"))
    stock = perplexity(lm, lm.tokenizer(TEXT)["input_ids"], 20)
    assert row["perplexity"] == pytest.approx(stock.perplexity, rel=1e-5) == row["perplexity_dense"]
    low = None if stock.low is None else pytest.approx(stock.low, rel=1e-5)
    assert row["low"] == low and row["units"] == stock.units >= 2


@pytest.mark.parametrize(
    "settings", [{"focus": {"window": 64}}, {"streaming_llm": {"window": 60}}, {"oracle_topk": {"k": 64}}], ids=str
)
def test_a_method_that_reads_everything_is_exactly_dense(ask, settings):
    ((name, given),) = settings.items()
    row = one(ask([{"name": name, "settings": given}]))
    assert row["difference"] == row["kl_mean"] == row["worst_bin_difference"] == 0
    assert row["same_top1"] == row["reads_causal"] == row["kv_read"] == 1
    assert row["perplexity"] == row["perplexity_dense"]


def test_what_was_calibrated_on_this_very_text_is_said(context, home):
    """A router and buckets that were fitted on the bundled samples saw the essay, as MagicPIG did."""
    names = ("focus", "bucket_routing", "magicpig", "streaming_llm")
    for sample, seen in (("essay", 3), ("story", 0)):
        key = context.add_text(*sample_texts()[sample])
        found = evaluate(str(home / "tiny"), key, [{"name": n} for n in names], 32, long_text="first", context=context)
        said = [note for note in found.numbers["notes"] if "was calibrated on this text" in note]
        assert len(said) == seen, said


# --- where it is not, by hand and in float64 ----------------------------------------------------------------------


@pytest.mark.parametrize("model", ["tiny", "begins"])
def test_losses_divergence_and_bits_in_float64(ask, context, home, model):
    method, length = METHODS["streaming_llm"](n_sink=1, window=3), 24
    result = ask([{"name": "streaming_llm", "settings": {"n_sink": 1, "window": 3}}], model=model, window=length)
    row, losses = one(result), result.tables["losses"]
    lm = context.model(str(home / model))
    tokens = tokenize(lm.tokenizer, TEXT, length, 1 << 20)
    windows = [tokens.ids[a:b] for a, b in tokens.spans if b - a == length]
    mine = [logits(context, home, method, window, model) for window in windows]
    dense = [logits(context, home, METHODS["dense"](), window, model) for window in windows]
    targets = [window[1:, None] for window in windows]
    loss = -np.stack([np.take_along_axis(p, t, 1)[:, 0] for p, t in zip(mine, targets, strict=True)])
    loss_dense = -np.stack([np.take_along_axis(p, t, 1)[:, 0] for p, t in zip(dense, targets, strict=True)])
    kl = np.stack([(np.exp(a) * (a - b)).sum(1) for a, b in zip(dense, mine, strict=True)])
    assert kl.mean() > 1e-3 and row["kl_mean"] == pytest.approx(kl.mean(), rel=1e-4)
    assert row["kl_p99"] == pytest.approx(np.quantile(kl, 0.99), rel=1e-4)
    assert row["perplexity"] == pytest.approx(np.exp(loss.mean()), rel=1e-5)
    assert row["difference"] == pytest.approx(np.expm1((loss - loss_dense).mean()), abs=1e-6)
    same = np.stack([a.argmax(1) == b.argmax(1) for a, b in zip(dense, mine, strict=True)])
    assert row["same_top1"] == same.mean() < 1
    np.testing.assert_allclose(losses["loss"].to_numpy().reshape(loss.shape), loss, atol=1e-5)
    np.testing.assert_allclose(losses["kl"].to_numpy().reshape(kl.shape), kl, atol=1e-5)
    spans = [(tokens.starts[at * length + 1], tokens.ends[(at + 1) * length - 1]) for at in range(len(windows))]
    count = sum(len(TEXT[a:b].encode()) for a, b in spans)
    assert row["bits_per_byte"] == pytest.approx(loss.sum() / math.log(2) / count, rel=1e-5)
    table = result.tables["tokens"]
    assert len(table) == len(windows) * length
    assert table["window"][losses["position"]].tolist() == losses["window"].tolist()
    assert sorted({*table["position"]} - {*losses["position"]}) == list(range(0, len(table), length)), "no target"
    assert model == "tiny" or set(table["piece"][::length]) == {"<s>"}, "every window begins as the model expects"


def test_reads_by_hand(ask):
    asked = [
        {"name": "streaming_llm", "settings": {"n_sink": 2, "window": 6}},
        {"name": "oracle_topk", "settings": {"k": 4}},
    ]
    result = ask(asked, window=40)
    sunk, best = result.numbers["rows"]
    causal = 40 * 41 // 2
    assert sunk["reads_causal"] == sunk["kv_read"] == sum(min(i + 1, 8) for i in range(40)) / causal
    assert best["reads_causal"] == sum(min(i + 1, 4) for i in range(40)) / causal
    assert best["kv_read"] == (1 + best["reads_kv"]) / 2 and best["ceiling"] and not sunk["ceiling"]
    assert best["reads_full"] == pytest.approx(best["reads_causal"] * 41 / 80)
    assert "scores all pairs and keeps" in result.numbers["sentence"]
    assert sunk["reads_kv"] == sunk["reads_causal"], "heads that share keys read the same window"
    assert (
        1 < best["sharing"] <= result.numbers["heads_sharing"] == 2
        and "per key-value head" in result.numbers["sentence"]
    )
    assert best["reads_kv"] == pytest.approx(best["sharing"] * best["reads_causal"])


def test_bins_are_paired_and_the_worst_one_is_named(ask):
    result = ask([{"name": "dense"}, {"name": "streaming_llm", "settings": {"window": 2, "n_sink": 0}}], window=60)
    dense, row = result.numbers["rows"]
    losses = result.tables["losses"]
    mine, difference = (
        losses[losses["method"] == 1][name].to_numpy().reshape(-1, 59) for name in ("loss", "difference")
    )
    assert [b["perplexity"] for b in row["bins"]] == position_bins(mine)["perplexity"].tolist()
    changes = [np.expm1(difference[:, b["first"] : b["last"]].mean()) for b in row["bins"]]
    assert [b["difference"] for b in row["bins"]] == pytest.approx(changes)
    assert row["worst_bin_difference"] == pytest.approx(max(changes)) and row["worst_bin"] == int(np.argmax(changes))
    assert row["bins"][-1]["last"] == 48 and result.numbers["protocol"]["bins"]["dropped"] == 11
    assert {b["difference"] for b in dense["bins"]} == {0} and len(result.tables["bins"]) == 32


# --- what comes back ----------------------------------------------------------------------------------------------


def test_the_result_is_strict_json_with_the_promised_keys_and_can_be_stored(ask, tmp_path):
    result = ask(None, window=48)
    assert [row["method"] for row in result.numbers["rows"]] == READY
    assert "methods" not in result.numbers, "what there is stands in no stored run"
    for row in json.loads(json.dumps(result.numbers, allow_nan=False))["rows"]:
        assert set(ROW) <= set(row) and set(row["settings"]) == set(row["defaults"])
    focus = result.numbers["rows"][1]
    assert focus["router"]["name"] == "k8-top1" and focus["defaults"]["window"] == focus["router"]["window"]
    store = RunStore(tmp_path)
    kept = store.put("evaluate", {"model": "tiny"}, result, result.numbers["protocol"], 1.0)
    assert len(store.open(kept.id).table("losses")) == len(result.tables["losses"]) == len(READY) * focus["tokens"]
    short = ask([{"name": "focus"}], "the cat sat on the mat")
    assert one(short)["low"] is None and one(short)["bins"][0]["low"] is None
    json.dumps(short.numbers, allow_nan=False)


def test_literal_membership_is_said_to_see_the_future(ask):
    literal = ask([{"name": "focus", "settings": {"membership": "literal"}}], window=24)
    assert any("saw the future" in note for note in literal.numbers["notes"])


# --- what is refused ----------------------------------------------------------------------------------------------

REFUSED = {
    "an unknown method": ({"methods": [{"name": "divine"}]}, "There is no method 'divine'"),
    "too long a window": ({"window": 65}, "A window of 65 tokens was asked for and .* reads 2 to 64"),
    "no window": ({"window": 1}, "A window of 1 tokens"),
    "another cut": ({"long_text": "last"}, "long_text is 'last'"),
    "a seed": ({"seed": -1}, "The seed is -1"),
    "too short a text": ({"text": "the cat", "window": 60}, "one window needs 60"),
    "no text": ({"text": ""}, "The text has 0 token"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_before_a_pass(case, ask, monkeypatch):
    arguments, said = REFUSED[case]
    monkeypatch.setattr("analysis.studies.quality.evaluate.score", lambda *_: pytest.fail("a pass was made"))
    with pytest.raises((BadSetting, BadText), match=said) as error:
        ask(**{"methods": [{"name": "dense"}], **arguments})
    assert str(error.value).endswith(".")
