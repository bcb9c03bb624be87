"""The keys that a token lost to a policy of CSA, against dense attention of the stock model."""

import json

import pytest
import torch

from analysis.errors import BadSetting
from analysis.studies.budgets.lost_keys import lost_keys
from analysis.studies.quality.evaluate import evaluate
from tests.made.calibrated import csa_context, csa_home, text


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with the tiny models."""
    return csa_home(tmp_path_factory.mktemp("lost"))


@pytest.fixture
def context(home):
    """A context; its policy comes from the bundled samples."""
    return csa_context(home)


@pytest.fixture
def tiny(home, context):
    """The model."""
    return context.model(str(home / "tiny"))


def test_the_lost_key_by_hand(home, context, tiny):
    key, counts = context.add_text("text 3", text(3)), 2
    recipe = {"edits": [{"set": counts}], "keep_total": False}
    result = lost_keys(str(home / "tiny"), key, recipe, position=64 + 40, window=64, context=context)
    ids = tiny.tokenizer(text(3), add_special_tokens=False)["input_ids"][64 : 64 + 40]
    with torch.no_grad():
        lm = tiny.lm
        lm.set_attn_implementation("eager")
        mass = torch.stack(lm(torch.tensor([ids]), output_attentions=True).attentions)[
            :, 0, :, -1
        ].double()  # [L, H, 40]
    dropped = mass.clone()
    dropped.scatter_(-1, mass.topk(counts).indices, 0.0)
    total = dropped.sum((0, 1))
    worst = int(total.argmax())
    numbers = json.loads(json.dumps(result.numbers, allow_nan=False))
    assert numbers["position"] == 104 and numbers["query"] == 103
    assert numbers["key"]["position"] == 64 + worst and numbers["key"]["distance"] == 39 - worst
    assert numbers["key"]["mass"] == pytest.approx(total[worst].item(), rel=1e-4)
    assert numbers["lost"] == pytest.approx(dropped.sum(-1).mean().item(), rel=1e-4)
    layer, head = numbers["key"]["layer"], numbers["key"]["head"]
    assert numbers["key"]["attention"] == pytest.approx(dropped[layer, head, worst].item(), rel=1e-4)
    heads = result.tables["heads"]
    assert len(heads) == 12 and heads["lost"].tolist() == pytest.approx(dropped.sum(-1).flatten().tolist(), abs=1e-6)
    assert result.tables["keys"]["mass"].is_monotonic_decreasing and "tokens back" in numbers["sentence"]
    assert numbers["difference"] == pytest.approx(numbers["loss"] - numbers["loss_dense"])


def test_the_worst_token_is_found_and_nothing_lost_is_said(home, context):
    key = context.add_text("text 3", text(3))
    few = {"edits": [{"set": 1}], "keep_total": False}
    worst = lost_keys(str(home / "tiny"), key, few, window=64, context=context).numbers
    evaluated = evaluate(str(home / "tiny"), key, [{"name": "csa", "policy": few}], window=64, context=context)
    losses = evaluated.tables["losses"]
    assert worst["position"] == losses.loc[losses["difference"].idxmax(), "position"]
    assert worst["difference"] == pytest.approx(losses["difference"].max(), abs=1e-6)
    none = lost_keys(str(home / "tiny"), key, None, position=3, window=64, context=context).numbers
    assert none["key"] is None and "no key of it was dropped" in none["sentence"]
    for place in (0, 64, 10**6, -1):
        with pytest.raises(BadSetting, match="is not predicted"):
            lost_keys(str(home / "tiny"), key, few, position=place, window=64, context=context)
