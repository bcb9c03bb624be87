"""What follows a compressed prompt: dense where nothing is removed, as a masked oracle where something is, bytes and
keys as the budget says, questions before and after the compression."""

import json
import math
from dataclasses import replace

import pytest
import torch

from analysis.commands.quality import Continuation
from analysis.costs import read_shape
from analysis.costs.shape import decode_bytes
from analysis.errors import BadSetting, BadText
from analysis.methods import METHODS
from analysis.models.counted import counted as shape_of
from analysis.seam.arguments import past_of
from analysis.seam.attention import apply
from analysis.seam.cache import cache_bytes
from analysis.studies.budgets.edited import held_bytes
from analysis.studies.quality.continuation import KNOWN, UNKNOWN
from analysis.studies.quality.following import NOTHING, PLAIN, follow
from tests.made.evaluating import TEXT

SNAPKV = {"name": "snapkv", "settings": {"ratio": 0.75, "window": 4}}
BLOCKS = {"name": "xattention", "settings": {"block": 8, "stride": 4, "threshold": 0.2}}
ADA = {"name": "ada_kv", "settings": {"ratio": 0.5, "window": 4}}


@pytest.fixture(scope="module")
def follows(ask):
    """`follows(methods, **arguments)` -> the answer of a continuation of TEXT."""

    def run(methods, **arguments):
        return ask(Continuation, methods=methods, **{"prefix": 32, "continuation": 12, "cuts": 2} | arguments)

    return run


@pytest.fixture(scope="module")
def tiny(context, home):
    return context.model(str(home / "tiny"))


def losses(result, row):
    table = result.tables["losses"]
    return torch.tensor(table[table["row"] == row]["loss"].to_numpy()).view(-1, 12)


def ids_of(model, text):
    return torch.tensor(model.tokenizer(text, add_special_tokens=False)["input_ids"])


def test_nothing_removed_is_dense(follows):
    names = ("snapkv", "ada_kv", "h2o", "expected_attention")
    result = follows([{"name": name, "settings": {"ratio": 0.0}} for name in names])
    dense, *sparse = result.numbers["rows"]
    assert dense["method"] == "dense" and dense["difference"] == 0 and dense["kept_keys"] == 32
    for place, row in enumerate(sparse, 1):
        assert row["kv_bytes"] == dense["kv_bytes"] and row["kv_share"] == 1 and row["kept_keys"] == 32
        assert torch.allclose(losses(result, place), losses(result, 0), atol=1e-5)


def test_another_setting_reads_once_and_finds_what_dense_attention_did(follows, context, monkeypatch):
    passes = []

    def counted(lm, method, *arguments):
        passes.append(method.title)
        return follow(lm, method, *arguments)

    monkeypatch.setattr("analysis.studies.quality.continuation.follow", counted)
    context.kept.clear()
    first = follows([SNAPKV], cuts=1)
    passes.clear()
    second = follows([SNAPKV | {"settings": {"ratio": 0.5, "window": 4}}], cuts=1)
    assert passes == ["SnapKV"] and second.numbers["rows"][0] == first.numbers["rows"][0]
    follows([SNAPKV], cuts=1, prefix=30)
    follows([SNAPKV], cuts=1, prefix=30, question="Who?")
    assert passes.count("Dense") == 3, "another prompt, and both settings of a question"


@pytest.mark.parametrize("spec", [SNAPKV, ADA, BLOCKS], ids=str)
def test_the_losses_are_those_of_one_masked_pass(follows, tiny, spec):
    """The same method on the whole text at once, its prompt ending at the cut."""
    result, ids = follows([spec]), ids_of(tiny, TEXT)
    with apply(tiny, METHODS[spec["name"]](cut=32, **spec["settings"])), torch.no_grad():
        logits = tiny.lm(ids[None, :44], use_cache=False).logits[0].double()
    wanted = -torch.log_softmax(logits, -1)[torch.arange(31, 43), ids[32:44]]
    assert torch.allclose(losses(result, 1)[0], wanted, atol=1e-5)
    assert not torch.allclose(losses(result, 1)[0], losses(result, 0)[0], atol=1e-4)


def test_budgets_are_keys_and_bytes(follows, tiny):
    result = follows([{"name": "snapkv", "settings": {"window": 4}}, ADA], ratios=[0.25, 0.75])
    dense, *rows = result.numbers["rows"]
    names = [(name, ratio) for name in ("snapkv", "ada_kv") for ratio in (0.25, 0.75)]
    assert [(row["method"], row["ratio"]) for row in rows] == names
    for row in rows:
        assert row["kept_keys"] == int(32 * (1 - row["ratio"])) and row["kv_share"] == 1 - row["ratio"]
        assert row["kv_bytes"] == dense["kv_bytes"] * (1 - row["ratio"])
        one_layer = dense["kv_bytes"] / tiny.num_layers
        assert row["kv_most_bytes"] == row["kv_bytes"] + one_layer, "one layer holds all of its keys"
        assert row["setting"] == PLAIN and row["units"] == 2 and row["low"] is None and row["blocks"] is None
    assert result.numbers["protocol"]["cuts"] == 2 and len(result.tables["losses"]) == 5 * 2 * 12


def test_a_kv_cache_is_counted_alike_everywhere(follows, tiny, home):
    """By the sizes in config.json (Is it worth it?), as a policy counts (KV budgets), held after a prompt (Quality vs
    speed, Generate), and as a cache of transformers is large."""
    budgets = [[32] * tiny.num_heads] * tiny.num_layers
    counted = held_bytes(tiny, shape_of(tiny), budgets, 32, 32)[0]
    assert counted == 2 * tiny.num_layers * tiny.num_kv_heads * 32 * tiny.head_dim * tiny.dtype.itemsize
    with torch.no_grad():
        cache = past_of(tiny.lm(torch.arange(32)[None], use_cache=True))
    assert counted == follows([SNAPKV]).numbers["rows"][0]["kv_bytes"] == cache_bytes(cache)[0]
    assert counted == sum(2 * layer.keys.nbytes for layer in cache.layers)
    shape = read_shape(json.loads((home / "tiny" / "config.json").read_text()))
    assert decode_bytes(replace(shape, cache_bytes=tiny.dtype.itemsize), 32)[0] == counted


def test_one_budget_for_all_and_steps_stay_in_range(follows):
    """Seven tenths of the cache, and of the blocks, as near as the steps of a method come."""
    _, snapkv, ada, blocks = follows([{"name": "snapkv"}, ADA, BLOCKS], share=0.7, prefix=50).numbers["rows"]
    assert snapkv["kv_share"] == ada["kv_share"] == 35 / 50 and snapkv["settings"]["ratio"] == 0.3
    assert ada["settings"]["window"] == 4 and blocks["settings"]["block"] == 8
    assert abs(blocks["blocks"] - 0.7) < 0.1 and blocks["kv_share"] == 1  # a map of 7 x 7 blocks
    with pytest.raises(BadSetting, match="equal-budget"):
        follows([{"name": "streaming_llm"}], share=0.5)
    # A prompt of a tiny model is shorter than what this rule always keeps.
    low, high = (METHODS["vertical_slash"](**METHODS["vertical_slash"].at_step(step)) for step in (0, 100))
    assert (low.vertical, low.slash) == (30, 100) and high.vertical > 10_000 and high.slash > 50_000


@pytest.mark.parametrize(
    "name, settings",
    [
        ("snapkv", {}),
        ("skip_softmax", {"block": 8}),
        ("flex_prefill", {"block": 8}),
        ("xattention", {"block": 8, "stride": 4}),
    ],
)
def test_a_step_more_keeps_no_less(name, settings, tiny):
    """The steps of every rule go one way, from next to nothing to everything it can keep."""
    window, budgets = ids_of(tiny, TEXT)[:60], []
    for step in (1, 30, 60, 100):
        result = follow(tiny, METHODS[name](**METHODS[name].at_step(step), **settings), window, 56, NOTHING)
        budgets.append(result.keys if result.blocks is None else result.blocks)
    assert budgets == sorted(budgets) and budgets[0] < budgets[-1]


def test_a_question_known_and_unknown(follows, tiny):
    result = follows([SNAPKV], question="the cat saw")
    rows = result.numbers["rows"]
    settings = [(name, setting) for setting in (UNKNOWN, KNOWN) for name in ("dense", "snapkv")]
    assert [(row["method"], row["setting"]) for row in rows] == settings
    question_tokens = len(ids_of(tiny, "the cat saw"))
    assert [row["kept_keys"] for row in rows if row["method"] == "snapkv"] == [8, (32 + question_tokens) // 4]
    assert torch.allclose(losses(result, 0), losses(result, 2), atol=1e-5), "dense reads the same either way"
    assert not torch.allclose(losses(result, 1), losses(result, 3), atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("share", [None, 0.5])
def test_of_all_methods_one_without_room_is_left_out_alone(follows, share):
    """A prompt of 52 of 64 positions leaves 12, too few to repeat it behind itself."""
    result = follows(None, prefix=52, share=share).numbers
    methods = [row["method"] for row in result["rows"]]
    assert "kvzip_plus" not in methods and {"dense", "snapkv", "kv_int4"} <= set(methods)
    (left_out,) = (note for note in result["notes"] if "is left out" in note)
    assert left_out.startswith("KVzip+")
    with pytest.raises(BadSetting, match="KVzip"):
        follows([{"name": "kvzip_plus"}], prefix=52)


def test_documents_are_the_units(follows):
    texts = [" ".join(TEXT.split()[place:]) for place in range(5)]
    result = follows([SNAPKV], texts=texts, cuts=1)
    row = result.numbers["rows"][1]
    assert (row["units"], row["unit"]) == (5, "documents") and row["low"] <= row["difference"] <= row["high"]
    assert row["difference"] == pytest.approx(math.expm1((losses(result, 1) - losses(result, 0)).mean()))


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"prefix": 60}, "The length of the prefix"),
        ({"cuts": 0}, "cuts"),
        ({"ratios": [1.5]}, "is 1.5"),
        ({"texts": []}, "At least one text"),
        ({"texts": ["too short"]}, "tokens and one window needs"),
    ],
)
def test_bad_arguments_are_refused(follows, arguments, message):
    with pytest.raises((BadSetting, BadText), match=message):
        follows([SNAPKV], **arguments)
