"""What follows a compressed prompt: dense where nothing is removed, as a masked oracle where something is, bytes and
keys as the budget says, questions before and after the compression."""

import json
import math
from dataclasses import replace

import pytest
import torch

from analysis.costs import kv_cache_bytes, read_shape
from analysis.costs.shape import decode_bytes
from analysis.errors import BadSetting, BadText
from analysis.methods import METHODS
from analysis.seam.arguments import past_of
from analysis.seam.attention import apply
from analysis.seam.cache import cache_bytes
from analysis.studies.quality.continuation import KNOWN, SECOND, UNKNOWN, continuation
from analysis.studies.quality.following import NOTHING, PLAIN, follow
from tests.made.evaluating import TEXT

SNAPKV = {"name": "snapkv", "settings": {"ratio": 0.75, "window": 4}}
BLOCKS = {"name": "xattention", "settings": {"block": 8, "stride": 4, "threshold": 0.2}}
ADA = {"name": "ada_kv", "settings": {"ratio": 0.5, "window": 4}}


@pytest.fixture(scope="module")
def ask(context, home):
    """`ask(methods, **arguments)` -> Result, of TEXT unless other texts are given."""

    def run(methods, texts=(TEXT,), **arguments):
        keys = [context.add_text(f"text {at}", text) for at, text in enumerate(texts)]
        given = {"prefix": 32, "continuation": 12, "cuts": 2} | arguments
        return continuation(str(home / "tiny"), keys, methods, **given, context=context)

    return run


def losses(result, row):
    table = result.tables["losses"]
    return torch.tensor(table[table["row"] == row]["loss"].to_numpy()).view(-1, 12)


def test_nothing_removed_is_dense(ask):
    result = ask(
        [{"name": name, "settings": {"ratio": 0.0}} for name in ("snapkv", "ada_kv", "h2o", "expected_attention")]
    )
    dense, *others = result.numbers["rows"]
    assert dense["method"] == "dense" and dense["difference"] == 0 and dense["kept_keys"] == 32
    for at, row in enumerate(others, 1):
        assert row["kv_bytes"] == dense["kv_bytes"] and row["kv_share"] == 1 and row["kept_keys"] == 32
        assert torch.allclose(losses(result, at), losses(result, 0), atol=1e-5)


def test_another_setting_reads_once_and_finds_what_dense_attention_did(ask, context, monkeypatch):
    read = []

    def counted(lm, method, *given):
        read.append(method.title)
        return follow(lm, method, *given)

    monkeypatch.setattr("analysis.studies.quality.continuation.follow", counted)
    context.kept.clear()
    first = ask([SNAPKV], cuts=1)
    read.clear()
    second = ask([SNAPKV | {"settings": {"ratio": 0.5, "window": 4}}], cuts=1)
    assert read == ["SnapKV"] and second.numbers["rows"][0] == first.numbers["rows"][0]
    ask([SNAPKV], cuts=1, prefix=30)
    ask([SNAPKV], cuts=1, prefix=30, question="Who?")
    assert read.count("Dense") == 3, "another prompt, and both settings of a question"


@pytest.mark.parametrize("asked", [SNAPKV, ADA, BLOCKS], ids=str)
def test_the_losses_are_those_of_one_masked_pass(ask, context, home, asked):
    """The same method on the whole text at once, its prompt ending at the cut."""
    result = ask([asked])
    lm = context.model(str(home / "tiny"))
    ids = torch.tensor(lm.tokenizer(TEXT, add_special_tokens=False)["input_ids"])
    method = METHODS[asked["name"]](cut=32, **asked["settings"])
    with apply(lm, method), torch.no_grad():
        logits = lm.lm(ids[None, :44], use_cache=False).logits[0].double()
    wanted = -torch.log_softmax(logits, -1)[torch.arange(31, 43), ids[32:44]]
    assert torch.allclose(losses(result, 1)[0], wanted, atol=1e-5)
    assert not torch.allclose(losses(result, 1)[0], losses(result, 0)[0], atol=1e-4)


def test_budgets_are_keys_and_bytes(ask, context, home):
    result = ask([{"name": "snapkv", "settings": {"window": 4}}, ADA], ratios=[0.25, 0.75])
    dense, *rows = result.numbers["rows"]
    assert [(row["method"], row["ratio"]) for row in rows] == [
        ("snapkv", 0.25),
        ("snapkv", 0.75),
        ("ada_kv", 0.25),
        ("ada_kv", 0.75),
    ]
    for row in rows:
        assert row["kept_keys"] == int(32 * (1 - row["ratio"])) and row["kv_share"] == 1 - row["ratio"]
        assert row["kv_bytes"] == dense["kv_bytes"] * (1 - row["ratio"])
        layers = context.model(str(home / "tiny")).num_layers
        assert row["kv_most_bytes"] == row["kv_bytes"] + dense["kv_bytes"] / layers, "one layer holds all of its keys"
        assert row["setting"] == PLAIN and row["units"] == 2 and row["low"] is None and row["blocks"] is None
    assert result.numbers["protocol"]["cuts"] == 2 and len(result.tables["losses"]) == 5 * 2 * 12


def test_a_kv_cache_is_counted_alike_wherever_it_is_told(ask, context, home):
    """By the sizes in config.json (Is it worth it?), as a policy counts (KV budgets), held after a prompt (Quality vs
    speed, Generate), and as a cache of transformers is large."""
    lm = context.model(str(home / "tiny"))
    counted = kv_cache_bytes(lm.num_layers * lm.num_kv_heads * 32, lm.head_dim, lm.dtype.itemsize)
    held = ask([SNAPKV]).numbers["rows"][0]["kv_bytes"]
    with torch.no_grad():
        cache = past_of(lm.lm(torch.arange(32)[None], use_cache=True))
    assert counted == held == cache_bytes(cache)[0] == sum(2 * layer.keys.nbytes for layer in cache.layers)
    shape = read_shape(json.loads((home / "tiny" / "config.json").read_text()))
    assert decode_bytes(replace(shape, value_bytes=lm.dtype.itemsize), 32)[0] == counted


def test_one_budget_for_all(ask):
    """Seven tenths of the cache, and of the blocks, as near as the steps of a method come."""
    result = ask([{"name": "snapkv"}, ADA, BLOCKS], share=0.7, prefix=50)
    _, snapkv, ada, blocks = result.numbers["rows"]
    assert snapkv["kv_share"] == ada["kv_share"] == 35 / 50 and snapkv["settings"]["ratio"] == 0.3
    assert ada["settings"]["window"] == 4 and blocks["settings"]["block"] == 8
    assert abs(blocks["blocks"] - 0.7) < 0.1 and blocks["kv_share"] == 1  # a map of 7 x 7 blocks
    with pytest.raises(BadSetting, match="equal-budget"):
        ask([{"name": "streaming_llm"}], share=0.5)


@pytest.mark.parametrize("name", ["snapkv", "skip_softmax", "flex_prefill", "xattention"])
def test_a_step_more_keeps_no_less(name, context, home):
    """The steps of every rule go one way, from next to nothing to everything it can keep."""
    lm = context.model(str(home / "tiny"))
    window = torch.tensor(lm.tokenizer(TEXT, add_special_tokens=False)["input_ids"][:60])
    found = []
    for step in (1, 30, 60, 100):
        block = {} if name == "snapkv" else {"block": 8} | ({"stride": 4} if name == "xattention" else {})
        made = METHODS[name](**METHODS[name].at_step(step), **block)
        one = follow(lm, made, window, 56, NOTHING)
        found.append(one.keys if one.blocks is None else one.blocks)
    assert found == sorted(found) and found[0] < found[-1]


def test_the_steps_of_columns_and_diagonals_stay_in_range():
    """A prompt of a tiny model is shorter than what this rule always keeps."""
    least, most = (METHODS["vertical_slash"](**METHODS["vertical_slash"].at_step(step)) for step in (0, 100))
    assert (least.vertical, least.slash) == (30, 100) and most.vertical > 10_000 and most.slash > 50_000


def test_a_question_known_unknown_and_a_second_one(ask, context, home):
    result = ask([SNAPKV], question="the cat saw", second="a dog?")
    rows = result.numbers["rows"]
    assert [(row["method"], row["setting"]) for row in rows] == [
        (name, setting) for setting in (UNKNOWN, KNOWN, SECOND) for name in ("dense", "snapkv")
    ]
    asked = len(context.model(str(home / "tiny")).tokenizer("the cat saw", add_special_tokens=False)["input_ids"])
    assert [row["kept_keys"] for row in rows if row["method"] == "snapkv"] == [8, (32 + asked) // 4, (32 + asked) // 4]
    assert torch.allclose(losses(result, 0), losses(result, 2), atol=1e-5), "dense reads the same either way"
    assert not torch.allclose(losses(result, 1), losses(result, 3), atol=1e-4)


def test_documents_are_the_units(ask):
    texts = [" ".join(TEXT.split()[at:]) for at in range(5)]
    result = ask([SNAPKV], texts, cuts=1)
    row = result.numbers["rows"][1]
    assert (row["units"], row["unit"]) == (5, "documents") and row["low"] <= row["difference"] <= row["high"]
    mean = (losses(result, 1) - losses(result, 0)).mean()
    assert row["difference"] == pytest.approx(math.expm1(mean))


@pytest.mark.parametrize(
    "given, said",
    [
        ({"prefix": 60}, "The length of the prefix"),
        ({"cuts": 0}, "The number of cuts"),
        ({"second": "why?"}, "A second question needs a first one"),
        ({"ratios": [1.5]}, "ratio is 1.5"),
        ({"texts": ()}, "needs at least one text"),
    ],
)
def test_bad_arguments_are_refused(ask, given, said):
    with pytest.raises(BadSetting, match=said):
        ask([SNAPKV], **given)
    with pytest.raises(BadText):
        ask([SNAPKV], ("too short",))


def test_one_pass_refuses_what_decides_at_a_prompts_end(context, home):
    from analysis.studies.quality.evaluate import evaluate

    key = context.add_text("a text", TEXT)
    with pytest.raises(BadSetting, match="score what follows a prompt with `continuation`"):
        evaluate(str(home / "tiny"), key, [SNAPKV], context=context)
