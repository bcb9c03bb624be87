"""`make-shape`: a checkpoint with random weights loads like any other, and what does not fit is refused."""

import json
import re

import pytest
import torch

from analysis.costs import read_shape
from analysis.errors import BadModel, BadSetting, TooLarge
from analysis.models import RANDOM, load_model
from analysis.shapes import make_shape
from tests.made.tiny import CONFIGS


def configured(folder, family: str, **changes) -> str:
    """The config.json of a tiny family whose vocabulary holds the bundled tokenizer."""
    path = folder / f"{family}.json"
    config = json.loads(CONFIGS[family]().to_json_string(use_diff=False)) | {"vocab_size": 4096}
    path.write_text(json.dumps(config | changes))
    return str(path)


def refused(kind, *arguments) -> str:
    with pytest.raises(kind) as caught:
        make_shape(*arguments)
    assert type(caught.value) is kind
    return str(caught.value)


LATER = [pytest.param(family, marks=pytest.mark.slow) for family in ("gpt2", "gpt_neox", "gemma2")]


@pytest.mark.parametrize("family", ["qwen2", *LATER])
def test_a_shape_loads_like_a_trained_model(tmp_path, family, monkeypatch):
    monkeypatch.setattr("analysis.shapes.SHARD", 200_000)
    result = make_shape(configured(tmp_path, family, tie_word_embeddings=family == "qwen2"), str(tmp_path / "made"))
    files = sorted((tmp_path / "made").glob("*.safetensors"))
    assert result.numbers["files"] == len(files) > 1 and result.numbers["bytes"] == 2 * result.numbers["parameters"]
    model = load_model(str(tmp_path / "made"))
    assert model.parameters == result.numbers["parameters"] and model.family == family and model.caution == RANDOM
    ids = torch.as_tensor(model.tokenizer("The cat sat on the mat.")["input_ids"])[None]
    assert model.lm(ids).logits.isfinite().all() and ids.shape[1] > 3
    drawn = [
        value for name, value in model.lm.named_parameters() if re.search("q_proj.w|c_attn.w|query_key_value.w", name)
    ]
    assert len(drawn) == 3 and all(0.015 < value.std() < 0.025 for value in drawn), "drawn as before any training"
    assert RANDOM in (tmp_path / "made" / "README.md").read_text()


def test_a_mixture_of_experts_is_drawn_whole(tmp_path):
    config = dict(model_type="mixtral", hidden_size=32, intermediate_size=48, num_hidden_layers=2, vocab_size=4096)
    config |= dict(num_attention_heads=4, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2)
    (tmp_path / "mixtral.json").write_text(json.dumps(config | {"architectures": ["MixtralForCausalLM"]}))
    result = make_shape(str(tmp_path / "mixtral.json"), str(tmp_path / "made"))
    model = load_model(str(tmp_path / "made"))
    assert model.parameters == result.numbers["parameters"]
    assert all(value.isfinite().all() and value.std() < 0.1 for value in model.lm.parameters())


# Small widths that every kind of layer takes, and of which a softmax layer and another come first.
WIDTHS = dict(hidden_size=64, intermediate_size=96, moe_intermediate_size=32, vocab_size=4096, num_attention_heads=4)
WIDTHS |= dict(num_experts_per_tok=2, max_position_embeddings=256, torch_dtype="bfloat16")
LATENT = dict(num_key_value_heads=4, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=16, qk_rope_head_dim=8)
LATENT |= dict(v_head_dim=16, n_routed_experts=4, n_shared_experts=1, n_group=1, topk_group=1, first_k_dense_replace=2)
INDEXER = dict(index_n_heads=2, index_head_dim=16, index_topk=8)
GROUPED = dict(num_key_value_heads=2, head_dim=16)
LINEAR = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16)
MAMBA = dict(mamba_num_heads=4, mamba_head_dim=32, ssm_state_size=16, n_groups=1, hybrid_override_pattern="MEM*-")
SHAPES = {  # family -> (what its config.json says, layers, those of its two that read keys)
    "deepseek_v3": (LATENT, 5, 2),
    "deepseek_v32": (LATENT | INDEXER, 5, 2),
    "gpt_oss": (GROUPED | dict(num_local_experts=4, sliding_window=8), 4, 2),
    "qwen3_next": (GROUPED | LINEAR | dict(num_experts=4, shared_expert_intermediate_size=32), 8, 1),
    "qwen3_moe": (GROUPED | dict(num_experts=4), 3, 2),
    "gemma4_text": (GROUPED | dict(global_head_dim=32, sliding_window=8, hidden_size_per_layer_input=8), 12, 2),
    "nemotron_h": (GROUPED | MAMBA | dict(n_routed_experts=4), 5, 1),
}


@pytest.mark.parametrize(
    "family",
    [pytest.param(name, marks=() if name in ("deepseek_v32", "qwen3_next") else pytest.mark.slow) for name in SHAPES],
)
def test_two_layers_of_every_kind_load_like_a_trained_model(tmp_path, family):
    """Of a config.json with many layers; quantised weights are made whole."""
    settings, layers, reading = SHAPES[family]
    config = WIDTHS | settings | {"model_type": family, "num_hidden_layers": layers}
    config |= {"quantization_config": {"quant_method": "mxfp4"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    result = make_shape(str(tmp_path / "config.json"), str(tmp_path / "made"), layers=2)
    model = load_model(str(tmp_path / "made"))
    assert model.parameters == result.numbers["parameters"] and model.caution == RANDOM
    assert model.lm.config.num_hidden_layers == 2 and model.num_layers == reading
    ids = torch.as_tensor(model.tokenizer("The cat sat on the mat.")["input_ids"])[None]
    assert model.lm(ids).logits.isfinite().all()
    written = json.loads((tmp_path / "made" / "config.json").read_text())
    assert "quantization_config" not in written
    # a kind of each stands in the two layers
    kinds = {layer.kind for layer in read_shape(config).stack}
    assert len({layer.kind for layer in read_shape(written).stack}) == min(2, len(kinds))


def test_more_layers_than_there_are_are_refused(tmp_path):
    assert "has 3 layers" in refused(BadSetting, configured(tmp_path, "qwen2"), str(tmp_path / "made"), None, 9)


def test_a_known_name_needs_no_owner_and_is_refused_where_it_does_not_fit(tmp_path, monkeypatch):
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Free", (), {"available": 10**9}))
    message = refused(TooLarge, "llama-3.2-1b", str(tmp_path / "made"))
    assert message.startswith("meta-llama/Llama-3.2-1B takes 1.6 GB and 1.0 GB are free in memory: choose a smaller")
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Free", (), {"free": 3 * 2**30}))
    message = refused(TooLarge, "meta-llama/Llama-3.1-8B", str(tmp_path / "deep" / "made"))
    assert message.startswith(f"meta-llama/Llama-3.1-8B takes 16.1 GB and 2.1 GB are free on the disk of {tmp_path}:")
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
