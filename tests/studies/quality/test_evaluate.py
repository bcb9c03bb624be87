"""Methods against dense on a text: exact where they must be equal, by hand and in float64 where they are not."""

import json
import math

import numpy as np
import pytest
import torch

from analysis.commands.quality import Evaluate
from analysis.corpus import sample_texts, tokenize
from analysis.declaration.undeclared import Undeclared
from analysis.errors import BadSetting, BadText
from analysis.methods import METHODS
from analysis.metrics.quality import perplexity, position_bins
from analysis.seam.attention import apply
from tests.made.evaluating import TEXT

SNAPKV = {"name": "snapkv", "settings": {"ratio": 0.75, "window": 4}}


def test_dense_against_dense_is_exactly_equal(ask, context, home):
    result = ask(Evaluate, methods=[{"name": "dense"}], window=20)
    (row,), losses = result.numbers["rows"], result.tables["losses"]
    assert row["difference"] == row["kl_mean"] == row["kl_p99"] == row["worst_bin_difference"] == 0
    assert row["same_top1"] == row["reads_causal"] == row["kv_read"] == 1 and row["reads_full"] == 21 / 40
    assert (losses[["difference", "kl"]] == 0).all().all()
    lm = context.model(str(home / "tiny"))
    stock = perplexity(lm, lm.tokenizer(TEXT)["input_ids"], 20)
    assert row["perplexity"] == pytest.approx(stock.perplexity, rel=1e-5) == row["perplexity_dense"]
    assert row["low"] == (stock.low and pytest.approx(stock.low, rel=1e-5)) and row["units"] == stock.units >= 2


@pytest.mark.parametrize("name, settings", [("focus", {"window": 64}), ("streaming_llm", {"window": 60})])
def test_a_method_that_reads_everything_is_exactly_dense(ask, name, settings):
    (row,) = ask(Evaluate, methods=[{"name": name, "settings": settings}]).numbers["rows"]
    assert row["difference"] == row["kl_mean"] == row["worst_bin_difference"] == 0
    assert row["same_top1"] == row["reads_causal"] == row["kv_read"] == 1
    assert row["perplexity"] == row["perplexity_dense"]


@pytest.mark.parametrize("sample, flattered", [("essay", 3), ("story", 0)])
def test_what_was_calibrated_on_this_very_text_is_noted(ask, sample, flattered):
    """A router and buckets that were fitted on the bundled samples saw the essay, as MagicPIG did."""
    methods = [{"name": name} for name in ("focus", "bucket_routing", "magicpig", "streaming_llm")]
    result = ask(Evaluate, sample_texts()[sample][1], methods=methods, window=32, long_text="first")
    assert sum("was calibrated on this text" in note for note in result.numbers["notes"]) == flattered


def log_probabilities(lm, method, window):
    """float64 [T - 1, V] of one window, computed apart from the study."""
    with torch.no_grad(), apply(lm, method, watch=lambda block, mass: None):
        logits = lm.lm(torch.as_tensor(window)[None], use_cache=False).logits[0, :-1]
    return torch.log_softmax(logits.double(), -1).numpy()


@pytest.mark.parametrize("model", ["tiny", "begins"])
def test_losses_divergence_and_bits_in_float64(ask, context, home, model):
    settings, length = {"n_sink": 1, "window": 3}, 24
    result = ask(Evaluate, model=model, methods=[{"name": "streaming_llm", "settings": settings}], window=length)
    (row,), losses = result.numbers["rows"], result.tables["losses"]
    lm = context.model(str(home / model))
    tokens = tokenize(lm.tokenizer, TEXT, length, 1 << 20)
    windows = np.stack([tokens.ids[a:b] for a, b in tokens.spans if b - a == length])
    sparse, dense = (
        np.stack([log_probabilities(lm, method, window) for window in windows])
        for method in (METHODS["streaming_llm"](**settings), METHODS["dense"]())
    )
    loss, loss_dense = (-np.take_along_axis(p, windows[:, 1:, None], 2)[..., 0] for p in (sparse, dense))
    kl = (np.exp(dense) * (dense - sparse)).sum(-1)
    assert kl.mean() > 1e-3 and row["kl_mean"] == pytest.approx(kl.mean(), rel=1e-4)
    assert row["kl_p99"] == pytest.approx(np.quantile(kl, 0.99), rel=1e-4)
    assert row["perplexity"] == pytest.approx(np.exp(loss.mean()), rel=1e-5)
    assert row["difference"] == pytest.approx(np.expm1((loss - loss_dense).mean()), abs=1e-6)
    assert row["same_top1"] == (dense.argmax(-1) == sparse.argmax(-1)).mean() < 1
    np.testing.assert_allclose(losses["loss"].to_numpy().reshape(loss.shape), loss, atol=1e-5)
    np.testing.assert_allclose(losses["kl"].to_numpy().reshape(kl.shape), kl, atol=1e-5)
    spans = [(tokens.starts[n * length + 1], tokens.ends[(n + 1) * length - 1]) for n in range(len(windows))]
    count = sum(len(TEXT[a:b].encode()) for a, b in spans)
    assert row["bits_per_byte"] == pytest.approx(loss.sum() / math.log(2) / count, rel=1e-5)
    table = result.tables["tokens"]
    assert len(table) == windows.size and table["window"][losses["position"]].tolist() == losses["window"].tolist()
    assert sorted({*table["position"]} - {*losses["position"]}) == list(range(0, len(table), length)), "no target"
    assert model == "tiny" or set(table["piece"][::length]) == {"<s>"}, "every window begins as the model expects"


def test_reads_by_hand(ask):
    methods = [
        {"name": "streaming_llm", "settings": {"n_sink": 2, "window": 6}},
        {"name": "oracle_topk", "settings": {"k": 4}},
    ]
    result = ask(Evaluate, methods=methods, window=40)
    sunk, best = result.numbers["rows"]
    causal = 40 * 41 // 2
    assert sunk["reads_causal"] == sunk["kv_read"] == sum(min(i + 1, 8) for i in range(40)) / causal
    assert best["reads_causal"] == sum(min(i + 1, 4) for i in range(40)) / causal
    assert best["kv_read"] == (1 + best["reads_kv"]) / 2 and best["ceiling"] and not sunk["ceiling"]
    assert best["reads_full"] == pytest.approx(best["reads_causal"] * 41 / 80)
    assert sunk["reads_kv"] == sunk["reads_causal"], "heads that share keys read the same window"
    assert 1 < best["sharing"] <= result.numbers["heads_sharing"] == 2
    assert best["reads_kv"] == pytest.approx(best["sharing"] * best["reads_causal"])


def test_bins_are_paired_and_the_worst_one_is_named(ask):
    sparse = {"name": "streaming_llm", "settings": {"window": 2, "n_sink": 0}}
    result = ask(Evaluate, methods=[{"name": "dense"}, sparse], window=60)
    dense, row = result.numbers["rows"]
    losses = result.tables["losses"].query("method == 1")
    loss, difference = (losses[name].to_numpy().reshape(-1, 59) for name in ("loss", "difference"))
    assert [part["perplexity"] for part in row["bins"]] == position_bins(loss)["perplexity"].tolist()
    changes = [np.expm1(difference[:, part["first"] : part["last"]].mean()) for part in row["bins"]]
    assert [part["difference"] for part in row["bins"]] == pytest.approx(changes)
    assert row["worst_bin_difference"] == pytest.approx(max(changes)) and row["worst_bin"] == int(np.argmax(changes))
    assert row["bins"][-1]["last"] == 48 and result.numbers["protocol"]["bins"]["dropped"] == 11
    assert {part["difference"] for part in dense["bins"]} == {0} and len(result.tables["bins"]) == 32


@pytest.mark.slow
def test_every_method_that_saves_reads_is_strict_json_and_can_be_stored(ask, store):
    result = ask(Evaluate, methods=None, window=48)
    # focal_learned and indexer need trained weights.
    trained = ("focal_learned", "indexer")
    ready = [name for name, method in METHODS.items() if method.saves == "reads" and name not in trained]
    rows = json.loads(json.dumps(result.numbers, allow_nan=False))["rows"]
    assert [row["method"] for row in rows] == ready
    assert all(set(row["settings"]) == set(row["defaults"]) for row in rows)
    assert rows[1]["router"]["name"] == "k8-top1" and rows[1]["defaults"]["window"] == rows[1]["router"]["window"]
    run = store.put(Undeclared("evaluate", {"model": "tiny"}), result, result.numbers["protocol"], 1.0)
    assert len(store.open(run.id).table("losses")) == len(ready) * rows[1]["tokens"]
    literal = {"name": "focus", "settings": {"membership": "literal"}}
    (short,) = (brief := ask(Evaluate, "the cat sat on the mat", methods=[literal])).numbers["rows"]
    assert short["low"] is None and short["bins"][0]["low"] is None and short["reads_future"]
    assert any("saw the future" in note for note in brief.numbers["notes"])
    json.dumps(brief.numbers, allow_nan=False)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"methods": [{"name": "divine"}]}, "There is no method 'divine'"),
        ({"window": 65}, "A window of 65 tokens was asked for and .* reads 2 to 64"),
        ({"window": 1}, "A window of 1 tokens"),
        ({"long_text": "last"}, "long_text"),
        ({"seed": -1}, "seed"),
        ({"text": "the cat", "window": 60}, "one window needs 60"),
        ({"text": ""}, "The text has 0 token"),
        ({"methods": [SNAPKV]}, "score what follows a prompt with `continuation`"),
    ],
    ids=str,
)
def test_bad_input_is_refused_before_a_pass(arguments, message, ask, monkeypatch):
    monkeypatch.setattr("analysis.studies.quality.evaluate.score", lambda *_: pytest.fail("a pass was made"))
    with pytest.raises((BadSetting, BadText), match=message):
        ask(Evaluate, **{"methods": [{"name": "dense"}], **arguments})


def test_a_model_without_an_indexer_has_none_to_replace(ask):
    with pytest.raises(BadSetting, match="no indexer"):
        ask(Evaluate, methods=[{"name": "dense"}], window=20, instead=True)
