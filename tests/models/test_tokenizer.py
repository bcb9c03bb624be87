"""Tokens counted without weights: the same as with them, and only where tokenizer.json is the whole tokenizer."""

import json
import shutil

import numpy as np
import pytest
from transformers import AutoTokenizer

from analysis.corpus import sample_texts, tokenize
from analysis.models.tokenizer import unloaded
from analysis.places import CACHE
from analysis.studies.context import Context, protocol

TEXTS = [text for _, text in sample_texts().values()] + ["<|endoftext|> x", " \n\n\t naïve 日本語 😀😀 e\u0301", "a b"]


@pytest.mark.parametrize("name", ["demo", "tiny"])
def test_it_cuts_as_the_loaded_tokenizer_does(name, tmp_path):
    if name == "tiny":  # with truncation and padding, which count no tokens
        shutil.copytree(CACHE / "demo", tmp_path / "tiny", ignore=lambda *_: ["studies", "examples", "routing"])
        coder = AutoTokenizer.from_pretrained(tmp_path / "tiny")
        coder._tokenizer.enable_truncation(8)
        coder._tokenizer.enable_padding()
        coder._tokenizer.save(str(tmp_path / "tiny" / "tokenizer.json"))
        name = str(tmp_path / "tiny")
    light, loaded = unloaded(name), AutoTokenizer.from_pretrained(CACHE / "demo", local_files_only=True)
    for text in TEXTS:
        ours, theirs = (tokenize(coder, text, 64) for coder in (light.tokenizer, loaded))
        for field in ("ids", "window", "starts", "ends", "broken"):
            assert np.array_equal(getattr(ours, field), getattr(theirs, field)), (text[:20], field)
        assert (ours.pieces, ours.total, ours.begin) == (theirs.pieces, theirs.total, theirs.begin)


def test_what_transformers_would_add_needs_transformers(tmp_path):
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"):
        shutil.copy(CACHE / "demo" / name, tmp_path / name)
    folder = str(tmp_path)
    model = unloaded(folder)
    assert model.max_positions == json.loads((tmp_path / "config.json").read_text())["max_position_embeddings"]
    assert unloaded(f"{folder}@bfloat16") is None, "a precision is tried out"
    for file, key, value in (
        ("tokenizer_config.json", "tokenizer_class", "LlamaTokenizer"),
        ("tokenizer_config.json", "add_bos_token", True),
        ("tokenizer_config.json", "bos_token", {"content": "<s>"}),
        ("config.json", "model_type", "falcon"),
        ("config.json", "max_position_embeddings", None),
    ):
        before = (tmp_path / file).read_text()
        (tmp_path / file).write_text(json.dumps(json.loads(before) | {key: value}))
        assert unloaded(folder) is None, key
        (tmp_path / file).write_text(before)
    assert unloaded(folder) is not None
    (tmp_path / "model.safetensors").unlink()
    assert unloaded(folder) is None, "a model without weights is refused where it is loaded"


def test_a_model_that_is_held_or_a_device_that_is_named_is_used():
    context = Context(browser=False)
    light = context.counts("demo")
    assert light.revision == context.model("demo").revision and context.counts("demo") is context.model("demo")
    light_protocol, full_protocol = protocol("inspect", light), protocol("inspect", context.model("demo"))
    assert set(light_protocol) == set(full_protocol) and light_protocol["window"] == full_protocol["window"]
    assert light_protocol["dtype"] is None
    assert Context(browser=False, device="cpu").counts("demo").precision == full_protocol["dtype"]
