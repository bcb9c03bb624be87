"""`make-shape`: a checkpoint with random weights loads like any other, and what does not fit is refused."""

import json
import re

import pytest
import torch

from analysis.errors import BadModel, BadSetting, TooLarge
from analysis.models import RANDOM, load_model
from analysis.shapes import make_shape
from tests.made.tiny import CONFIGS


def configured(folder, family: str, **changes) -> str:
    """The config.json of a tiny family whose vocabulary holds the bundled tokenizer."""
    path = folder / f"{family}.json"
    told = json.loads(CONFIGS[family]().to_json_string(use_diff=False)) | {"vocab_size": 4096}
    path.write_text(json.dumps(told | changes))
    return str(path)


def refused(kind, *given) -> str:
    with pytest.raises(kind) as caught:
        make_shape(*given)
    assert type(caught.value) is kind
    return str(caught.value)


LATER = [pytest.param(family, marks=pytest.mark.slow) for family in ("gpt2", "gpt_neox", "gemma2")]


@pytest.mark.parametrize("family", ["qwen2", *LATER])
def test_a_shape_loads_like_a_trained_model(tmp_path, family, monkeypatch):
    monkeypatch.setattr("analysis.shapes.SHARD", 200_000)
    made = make_shape(configured(tmp_path, family, tie_word_embeddings=family == "qwen2"), str(tmp_path / "made"))
    files = sorted((tmp_path / "made").glob("*.safetensors"))
    assert made.numbers["files"] == len(files) > 1 and made.numbers["bytes"] == 2 * made.numbers["parameters"]
    model = load_model(str(tmp_path / "made"))
    assert model.parameters == made.numbers["parameters"] and model.family == family and model.caution == RANDOM
    ids = torch.as_tensor(model.tokenizer("The cat sat on the mat.")["input_ids"])[None]
    assert model.lm(ids).logits.isfinite().all() and ids.shape[1] > 3
    drawn = [
        value for name, value in model.lm.named_parameters() if re.search("q_proj.w|c_attn.w|query_key_value.w", name)
    ]
    assert len(drawn) == 3 and all(0.015 < value.std() < 0.025 for value in drawn), "drawn as before any training"
    assert RANDOM in (tmp_path / "made" / "README.md").read_text()


def test_a_mixture_of_experts_is_drawn_whole(tmp_path):
    told = dict(model_type="mixtral", hidden_size=32, intermediate_size=48, num_hidden_layers=2, vocab_size=4096)
    told |= dict(num_attention_heads=4, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2)
    (tmp_path / "mixtral.json").write_text(json.dumps(told | {"architectures": ["MixtralForCausalLM"]}))
    made = make_shape(str(tmp_path / "mixtral.json"), str(tmp_path / "made"))
    model = load_model(str(tmp_path / "made"))
    assert model.parameters == made.numbers["parameters"]
    assert all(value.isfinite().all() and value.std() < 0.1 for value in model.lm.parameters())


def test_a_known_name_needs_no_owner_and_is_refused_where_it_does_not_fit(tmp_path, monkeypatch):
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Free", (), {"available": 10**9}))
    said = refused(TooLarge, "llama-3.2-1b", str(tmp_path / "made"))
    assert said.startswith("meta-llama/Llama-3.2-1B takes 1.6 GB and 1.0 GB are free in memory: choose a smaller")
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Free", (), {"free": 3 * 2**30}))
    said = refused(TooLarge, "meta-llama/Llama-3.1-8B", str(tmp_path / "deep" / "made"))
    assert said.startswith(f"meta-llama/Llama-3.1-8B takes 16.1 GB and 2.1 GB are free on the disk of {tmp_path}:")
    assert not any(tmp_path.iterdir())


def test_what_is_no_shape_is_refused_and_nothing_stays(tmp_path):
    assert "one of gpt2, pythia-410m, Qwen2.5-0.5B" in refused(BadSetting, "Qwen9", str(tmp_path / "made"))
    (tmp_path / "there").mkdir()
    assert "is there already" in refused(BadSetting, "gpt2", str(tmp_path / "there"))
    small = refused(BadModel, configured(tmp_path, "llama", vocab_size=96), str(tmp_path / "made"))
    assert "has a vocabulary of 96 and the tokenizer that is written beside it has 4,096" in small
    (tmp_path / "bloom.json").write_text(
        json.dumps(dict(model_type="bloom", hidden_size=32, n_layer=2, n_head=4, vocab_size=9))
    )
    assert "BLOOM models have no softmax" in refused(BadModel, str(tmp_path / "bloom.json"), str(tmp_path / "made"))
    assert {path.name for path in tmp_path.iterdir()} == {"there", "llama.json", "bloom.json"}


def test_one_that_is_stopped_leaves_nothing(tmp_path):
    def stop(fraction, stage):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_shape(configured(tmp_path, "llama"), str(tmp_path / "made"), stop)
    assert {path.name for path in tmp_path.iterdir()} == {"llama.json"}
