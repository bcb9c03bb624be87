"""`sparse-config`, skip softmax for serving stacks: the fit, the file that leaves, and what is refused."""

import json

import numpy as np
import pytest

from analysis.commands.quality import SparseConfig
from analysis.errors import BadSetting
from analysis.statistics.skipped import DECODED, fit_scale, rises_of, skipped
from analysis.studies.take.sparse_config import _targets, sparse_config
from tests.made.evaluating import TEXT

OTHER = "a dog ran to the house and a cat sat there on the old mat\n" * 12


@pytest.fixture
def ask(context, home):
    """`ask(**arguments)` -> Result for the tiny model, of two texts."""
    texts = [context.add_text(name, text) for name, text in (("one", TEXT), ("other", OTHER))]
    about = {"texts": texts, "model": str(home / "tiny"), "block": 8}
    return lambda **options: sparse_config(SparseConfig(**about, **options), context=context)


def test_the_scale_is_fitted_and_stays_below_the_shortest_length():
    shares = np.linspace(0, 1, 21)
    constants = fit_scale(0.3 * np.exp(7 * shares), shares)
    np.testing.assert_allclose(constants, (0.3, 7))
    assert fit_scale(np.ones(3), np.array([0.0, 0.05, 0.95])) is None  # outside of what is fitted
    assert fit_scale(np.array([3.0, 2.0, 1.0]), np.array([0.2, 0.4, 0.6])) is None  # more is left out by less
    fitted = {"prefill": (10.0, 5.0), "decode": (90.0, 5.0)}
    targets, notes = _targets(fitted, {"prefill": 0.4, "decode": 0.5}, 100)
    assert targets == {"prefill": 0.4}  # 10 exp(5 * 0.46) = 100; of decode only 0.02 would do
    targets, (note,) = _targets(fitted, {"prefill": 0.5}, 100)
    assert targets == {"prefill": 0.46} and note.startswith("Prefill leaves out 46% instead of 50%: ")
    with pytest.raises(BadSetting, match="would gain nothing"):
        _targets({}, {"prefill": 0.5, "decode": 0.5}, 100)


def test_every_visible_block_has_one_rise(context, home):
    lm = context.model(str(home / "tiny"))
    ids = np.asarray(lm.tokenizer(TEXT, add_special_tokens=False)["input_ids"][:64])
    rises = rises_of(lm, ids, [0, 2], 8)
    assert len(rises["prefill"]) == 2 * lm.num_heads * 8 * 9 // 2  # 8 rows of blocks, as many as are visible
    assert len(rises["decode"]) == 2 * lm.num_heads * DECODED * 8
    shares = skipped(rises["prefill"], np.array([1e-6, 0.5, 0.999]))
    assert (np.diff(shares) >= 0).all() and shares[-1] < 1  # the first block is never left out


def test_the_file_is_what_serving_stacks_read(ask, tmp_path):
    answer = ask(prefill=0.2, decode=0.2, dense=[1], output=str(tmp_path / "sparse.json"))
    assert json.loads((tmp_path / "sparse.json").read_text()) == answer.numbers["config"]
    group = answer.numbers["config"]["sparse_attention_config"]["config_groups"]["group_0"]
    assert group["algorithm"] == "skip_softmax" and group["targets"] == ["LlamaAttention"]
    assert group["ignore"] == ["model.layers.1.self_attn"]
    phases = list(group["target_sparsity"])
    assert phases and group["threshold_scale_factor"]["formula"] == "a * exp(b * target_sparsity)"
    for row in answer.numbers["rows"]:
        constants, target = group["threshold_scale_factor"][row["phase"]], group["target_sparsity"][row["phase"]]
        np.testing.assert_allclose(row["scale"], constants["a"] * np.exp(constants["b"] * target))
        assert 0 <= row["skipped"] < 1 and row["scale"] < 32
    assert {row["length"] for row in answer.numbers["rows"]} == {32, 64}
    ask(prefill=0.2, decode=0.2, dense=[1], output=str(tmp_path / "sparse.yaml"))
    lines = (tmp_path / "sparse.yaml").read_text().splitlines()
    assert lines[:3] == ["sparse_attention_config:", "  algorithm: skip_softmax", "  threshold_scale_factor:"]
    assert [line.split(":")[0].strip() for line in lines[3:]] == phases


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"output": "sparse.txt"}, "ends in neither .json"),
        ({"lengths": [16]}, "A length is 16 and must lie between 32 and 64"),
        ({"dense": [0, 1, 2]}, "Every layer stays dense"),
        ({"dense": [7]}, "A dense layer is 7"),
    ],
)
def test_what_is_refused(ask, arguments, message):
    with pytest.raises(BadSetting, match=message):
        ask(**arguments)
