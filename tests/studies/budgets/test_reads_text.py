"""One text with ever fewer keys, token by token, on a tiny model, and the keys that a token lost, against dense
attention of the stock model."""

import json

import numpy as np
import pytest
import torch

from analysis.commands.budgets import Calibrate, LostKeys, ReadsText
from analysis.commands.quality import Evaluate
from analysis.errors import BadSetting, BadText
from analysis.metrics.budgets import budget_for_reads
from analysis.studies.budgets.recipes import policy_for
from tests.made.calibrated import text

SHARES = [0.1, 1.0, 0.4]


@pytest.fixture(scope="module")
def tiny(ask, context, home):
    """The model, with a policy of text 1."""
    ask(Calibrate, text(1), window=32, tokens=320, caps=[])
    return context.model(str(home / "tiny"))


@pytest.fixture(scope="module")
def read(ask, tiny):
    return ask(ReadsText, text(2), shares=SHARES, window=32)


def test_from_everything_to_next_to_nothing(read, context, tiny):
    numbers = json.loads(json.dumps(read.numbers, allow_nan=False))
    rows, ranks, apart = numbers["rows"], policy_for(context, tiny).ranks, read.arrays["difference"]
    assert [row["share"] for row in rows] == [1, 0.4, 0.1]
    assert [row["total"] for row in rows] == [budget_for_reads(ranks, share, 32) for share in (1, 0.4, 0.1)]
    assert rows[0]["reads_causal"] == 1 and abs(rows[0]["difference"]) < 1e-5
    assert all(row["reads_causal"] >= row["share"] - 1e-9 for row in rows)
    assert rows[2]["reads_causal"] < rows[1]["reads_causal"] < 0.45 and rows[2]["reads_full"] < rows[2]["reads_causal"]
    for row, change in zip(rows, apart, strict=True):
        assert np.expm1(change.mean()) == pytest.approx(row["difference"], abs=1e-5)
        last, worst = row["bins"][-1], row["bins"][row["worst_bin"]]
        assert last["perplexity_low"] < last["perplexity"] < last["perplexity_high"]
        assert abs(worst["difference"]) == max(abs(part["difference"]) for part in row["bins"])
    assert np.abs(apart[0]).max() < 1e-4 < np.abs(apart[2]).max()
    places = read.arrays["position"]
    assert apart.shape == (3, len(places)) and places[:31].tolist() == list(range(1, 32)) and places[31] == 33
    assert np.exp(read.arrays["loss"].mean()) == pytest.approx(rows[0]["perplexity_dense"], rel=1e-5)
    assert len(read.tables["tokens"]) == numbers["window"] * numbers["windows"] and len(read.tables["bins"]) == 48


def test_the_worst_token_is_that_of_lost_keys_and_of_evaluate_and_one_may_lose_nothing(read, ask, tiny):
    worst, place = read.numbers["lost"][2], int(read.arrays["difference"][2].argmax())
    assert worst["position"] == read.arrays["position"][place]
    assert worst["difference"] == pytest.approx(read.arrays["difference"][2].max(), rel=1e-4)
    recipe = {"name": "policy", "reads": 0.1}
    again = ask(LostKeys, text(2), policy=recipe, cap=1 << 20, position=worst["position"], window=32).numbers
    assert again["key"] == worst["key"] and again["difference"] == pytest.approx(worst["difference"], abs=1e-4)
    few = {"edits": [{"set": 1}], "keep_total": False}
    worst = ask(LostKeys, text(3), policy=few, window=64).numbers
    losses = ask(Evaluate, text(3), methods=[{"name": "csa", "policy": few}], window=64).tables["losses"]
    assert worst["position"] == losses.loc[losses["difference"].idxmax(), "position"]
    assert worst["difference"] == pytest.approx(losses["difference"].max(), abs=1e-6)
    assert ask(LostKeys, text(3), position=1, window=64).numbers["key"] is None, "it sees one key"
    for place in (0, 64, 10**6, -1):
        with pytest.raises(BadSetting, match="is not predicted"):
            ask(LostKeys, text(3), policy=few, position=place, window=64)


def test_what_the_policy_has_seen_is_not_scored(ask, tiny):
    result = ask(ReadsText, text(1), shares=[0.4], window=32)
    assert "only windows of its second half" in " ".join(result.numbers["notes"])
    starts = result.tables["tokens"]["start"].to_numpy()
    assert starts[result.arrays["position"]].min() >= len(text(1)) // 2
    with pytest.raises(BadText, match="no whole window lies in the second"):
        ask(ReadsText, text(1), shares=[0.4], window=32, long_text="first")
    ask(Calibrate, texts=[text(3), text(4)], window=32, tokens=320, caps=[], name="two")
    with pytest.raises(BadSetting, match="calibrated the policy two"):
        ask(ReadsText, text(3), policy="two", shares=[0.4], window=32)
    assert ask(ReadsText, text(4), policy="two", shares=[0.4], window=32).numbers["rows"]


@pytest.mark.parametrize("shares", [[], [0.0], [1.5], [True], ["x"]])
def test_bad_shares_are_refused(ask, shares):
    with pytest.raises(BadSetting, match="shares"):
        ask(ReadsText, text(2), shares=shares)


def test_the_lost_key_by_hand(ask, tiny):
    count, recipe = 2, {"edits": [{"set": 2}], "keep_total": False}
    result = ask(LostKeys, text(3), policy=recipe, position=64 + 40, window=64)
    ids = tiny.tokenizer(text(3), add_special_tokens=False)["input_ids"][64 : 64 + 40]
    with torch.no_grad():
        tiny.lm.set_attn_implementation("eager")
        layers = tiny.lm(torch.tensor([ids]), output_attentions=True).attentions
    dropped = torch.stack(layers)[:, 0, :, -1].double()  # [L, H, 40]
    dropped.scatter_(-1, dropped.topk(count).indices, 0.0)
    total = dropped.sum((0, 1))
    worst = int(total.argmax())
    numbers = json.loads(json.dumps(result.numbers, allow_nan=False))
    key = numbers["key"]
    assert numbers["position"] == 104 and numbers["query"] == 103
    assert key["position"] == 64 + worst and key["distance"] == 39 - worst and key["budget"] == count
    assert key["mass"] == pytest.approx(total[worst].item(), rel=1e-4)
    assert key["attention"] == pytest.approx(dropped[key["layer"], key["head"], worst].item(), rel=1e-4)
    assert numbers["lost"] == pytest.approx(dropped.sum(-1).mean().item(), rel=1e-4)
    heads = result.tables["heads"]
    assert len(heads) == 12 and heads["lost"].tolist() == pytest.approx(dropped.sum(-1).flatten().tolist(), abs=1e-6)
    assert result.tables["keys"]["mass"].is_monotonic_decreasing
    assert numbers["difference"] == pytest.approx(numbers["loss"] - numbers["loss_dense"])
