"""A router trained on short texts and read on long ones, on a tiny model: rows, extrapolation, stopping, refusals."""

import json

import pytest
import torch
from transformers import GPT2LMHeadModel

from analysis.errors import BadSetting, BadText
from analysis.studies import NAMED
from analysis.studies.context import Context
from tests.made.studied import asker, part_again, studied_home
from tests.made.tiny import CONFIGS
from tests.made.tiny_tokenizer import byte_level

SIZES = {"length": 16, "windows": 40, "window": 3, "n_sink": 1, "steps": 3, "tokens_per_step": 32, "seeds": 1}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return studied_home(tmp_path_factory.mktemp("lengths"))


@pytest.fixture
def ask(home, tmp_path):
    given = {"corpus": str(home / "corpus"), "output": str(tmp_path / "l.json")}
    return asker(NAMED["lengths"], home, **given, **SIZES)


@pytest.mark.slow
def test_every_length_reads_the_same_tokens(ask, home, tmp_path):
    result = ask(rows="16,32,64,128")
    numbers, stored = result.numbers, json.loads((tmp_path / "l.json").read_text(), parse_constant=pytest.fail)
    assert {c["name"] for c in numbers["columns"]} <= set().union(*numbers["rows"])
    rows = {(row["length"], row["k"]): row for row in numbers["rows"]}
    assert list(rows) == [(size, k) for size in (16, 32, 64, 128) for k in (1, 2)]
    assert {row["length"] * row["windows"] for row in rows.values()} == {640}
    for (size, _), row in rows.items():
        assert row["extrapolated"] == (size > 64) and 0 < row["pairs_share"] < 1
        assert row["against_dense_low"] <= row["against_dense"] <= row["against_dense_high"]
        assert 0.25 <= row["largest_share"] <= 1 and row["perplexity_literal"] > 1
    assert rows[16, 1]["perplexity_dense"] == rows[16, 2]["perplexity_dense"]
    assert rows[64, 1]["pairs_share"] < rows[64, 2]["pairs_share"]
    assert any("128 is extrapolated" in note for note in numbers["notes"])
    assert "128 (extrapolated)" in numbers["sentence"] and "--rows 16,32,64,128" in numbers["protocol"]["command"]
    assert [len(p["x_values"]) for p in numbers["panels"]] == [4] * 5
    assert part_again(NAMED["lengths"], stored, home)
    again = NAMED["lengths"].recheck(stored, context=Context(state=home / "state", browser=False))
    assert list(again) == ["router"] and all(len(kept) == 2 and now == kept for kept, now in again.values())


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"rows": "long"}, BadSetting, "are lengths such as 512,1024,2048, not 'long'"),
        ({"rows": "8"}, BadSetting, "choose lengths from 16"),
        ({"rows": "65536"}, BadText, "2 windows need 131,072"),
        ({"length": 65}, BadSetting, "A window of text is 65"),
        ({"window": 16}, BadSetting, "always read is 16"),
        ({"groups": 17}, BadSetting, "17 groups are balanced over the tokens of a step, and it has 16"),
    ],
)
def test_what_cannot_be_studied_is_refused(given, error, said, ask):
    with pytest.raises(error, match=said):
        ask(**given)


def test_learned_positions_end(ask, tmp_path):
    torch.manual_seed(0)
    config = CONFIGS["gpt2"]()
    config.n_positions, config.vocab_size = 32, len(byte_level())
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "gpt2")
    byte_level().save_pretrained(tmp_path / "gpt2")
    with pytest.raises(BadSetting, match="gpt2 has learned positions for 32 tokens, so nothing can be read at 64"):
        ask(model=str(tmp_path / "gpt2"))
