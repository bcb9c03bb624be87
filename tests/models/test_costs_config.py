"""From a config.json to a shape: every family against the real model's matrices, mixtures, windows, and refusals."""

import json

import pytest

from analysis.costs import KNOWN, FeedForward, read_config, read_shape
from analysis.errors import BadModel
from tests.made.tiny import CONFIGS, tiny
from tests.models.test_costs import LLAMA, PYTHIA, shape

SIZES = {  # parameters in billions, as the models' cards state them
    "openai-community/gpt2": 0.124,
    PYTHIA: 0.405,
    "Qwen/Qwen2.5-0.5B": 0.494,
    "meta-llama/Llama-3.2-1B": 1.24,
    "Qwen/Qwen2.5-1.5B": 1.54,
    "google/gemma-2-2b": 2.61,
    "mistralai/Mistral-7B-v0.1": 7.24,
    "Qwen/Qwen2.5-7B": 7.62,
    "meta-llama/Llama-3.1-8B": 8.03,
    "google/gemma-2-9b-it": 9.24,
    "mistralai/Mixtral-8x7B-v0.1": 46.7,
    "meta-llama/Llama-2-70b-hf": 69.0,
    "meta-llama/Llama-3.1-70B": 70.6,
    "openai/gpt-oss-20b": 20.9,
    "Qwen/Qwen3-30B-A3B": 30.5,
    "Qwen/Qwen3-Next-80B-A3B-Instruct": 79.7,
    "openai/gpt-oss-120b": 116.8,
    "zai-org/GLM-4.5": 352.8,
    "deepseek-ai/DeepSeek-V3.2": 671.9,
}


@pytest.mark.parametrize("name", KNOWN)
def test_the_well_known_shapes_have_their_known_sizes(name):
    assert read_shape(KNOWN[name]).parameters / 1e9 == pytest.approx(SIZES[name], rel=0.006)


@pytest.mark.parametrize("family", CONFIGS)
def test_every_family_has_the_matrices_of_the_real_model(family):
    """Against the model that transformers makes of the same config: the weights of all its matrices, counted."""
    lm, config_shape = tiny(family), read_shape(json.loads(CONFIGS[family]().to_json_string(use_diff=False)))
    sizes = {id(p): p.numel() for name, p in lm.named_parameters() if p.ndim == 2 and "wpe" not in name}
    assert config_shape.parameters == sum(sizes.values())
    assert (config_shape.layers, config_shape.heads, config_shape.max_positions, config_shape.width) == (3, 4, 512, 32)
    assert config_shape.kv_heads == (4 if family in ("gpt2", "gpt_neox") else 2)
    assert config_shape.windows == {"mistral": (12, 12, 12), "gemma2": (12, None, 12)}.get(family, (None,) * 3)


MIXTURES = {
    "mixtral": ({"num_local_experts": 8, "num_experts_per_tok": 2}, (8, 2, 16, 0), 2),
    "qwen2_moe": (
        {"num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 6, "shared_expert_intermediate_size": 20}
        | {"decoder_sparse_step": 2, "sliding_window": 9},
        (60, 4, 6, 20),
        1,
    ),
    "qwen3_moe": ({"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 6}, (128, 8, 6, 0), 2),
    "gpt_oss": ({"num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128}, (32, 4, 16, 0), 2),
    "olmoe": ({"num_experts": 64, "num_experts_per_tok": 8, "mlp_only_layers": [0]}, (64, 8, 16, 0), 1),
}


@pytest.mark.parametrize("family", MIXTURES)
def test_mixtures_of_experts(family):
    fields, (experts, active, width, shared), sparse = MIXTURES[family]
    mixture = shape(model_type=family, **fields)
    mixed = [block for block in mixture.blocks if block.experts > 1]
    assert len(mixed) == sparse and all(block.matrices == 3 for block in mixture.blocks)
    assert (mixed[0].experts, mixed[0].active, mixed[0].width, mixed[0].shared) == (experts, active, width, shared)
    assert mixture.windows == ((128, None) if family == "gpt_oss" else (None, None))


def test_windows_follow_the_family():
    assert shape(model_type="mistral", sliding_window=7).windows == (7, 7)
    assert shape(model_type="mistral", sliding_window=None).windows == (None, None)
    assert shape(model_type="gemma2", sliding_window=7).windows == (7, None)
    assert shape(model_type="qwen2", sliding_window=7).windows == (None, None), "unless it says that they are used"
    used = {"use_sliding_window": True, "max_window_layers": 1}
    assert shape(model_type="qwen2", sliding_window=7, **used).windows == (None, 7)
    windows = shape(model_type="gemma3_text", sliding_window=7, num_hidden_layers=12).windows
    assert [layer for layer, window in enumerate(windows) if window is None] == [5, 11]


def test_other_names_and_what_is_left_open():
    old = {"n_embd": 8, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 10}
    gpt2 = read_shape(old)
    assert (gpt2.family, gpt2.tied, gpt2.kv_heads, gpt2.blocks[0]) == ("gpt2", True, 4, FeedForward(32, 2))
    assert gpt2.value_bytes == 2 and "2 bytes" in gpt2.notes[0]
    assert read_shape(old | {"multi_query": True, "model_type": "gpt_bigcode"}).kv_heads == 1
    strange = shape(model_type="brandnew")
    assert strange.blocks[0].matrices == 3 and "'brandnew' is not known here" in strange.notes[0]
    assert "Only the text part" in read_shape({"text_config": LLAMA, "model_type": "llava"}).notes[0]
    assert len(shape(model_type="x" * 9000).family) == 40
    assert any("quantised" in note for note in shape(quantization_config={"quant_method": "aqlm"}).notes)
    assert any("4 bits a weight" in note for note in shape(quantization_config={"bits": 4}).notes)
    assert shape(head_dim=5, num_attention_heads=4).head_dim == 5 and shape().tied is False


REFUSED = {
    "an encoder": ({"model_type": "bert", "architectures": ["BertForMaskedLM"]}, "'BertForMaskedLM' is not a causal"),
    "an encoder by its name": (LLAMA | {"model_type": "roberta"}, "'roberta' is not a causal language model"),
    "two halves": (LLAMA | {"model_type": "t5", "is_encoder_decoder": True}, "'t5' is not a causal language model"),
    "a classifier": (LLAMA | {"architectures": ["LlamaForSequenceClassification"]}, "not a causal language model"),
    "nothing": ({}, "lacks num_hidden_layers, hidden_size, num_attention_heads, vocab_size"),
    "no vocabulary": ({k: v for k, v in LLAMA.items() if k != "vocab_size"}, "lacks vocab_size"),
    "no feed-forward width": ({k: v for k, v in LLAMA.items() if k != "intermediate_size"}, "lacks intermediate_size"),
    "a state space": (LLAMA | {"model_type": "mamba2"}, "'mamba2' has no layer of softmax attention"),
    "linear layers of nobody": (LLAMA | {"layer_types": ["linear_attention"] * 2}, "'llama' has linear layers"),
    "a kind of layer": (LLAMA | {"layer_types": ["memory", "full_attention"]}, "layers of type 'memory'"),
    "a latent without sizes": (LLAMA | {"kv_lora_rank": 512}, "lacks qk_nope_head_dim"),
    "a family of another make": (LLAMA | {"model_type": "zamba"}, "has layers that share their weights"),
    "layers without a type": (LLAMA | {"layer_types": ["full_attention"]}, "types of 1 layers"),
    "too many layers": (LLAMA | {"num_hidden_layers": 10**9}, "from 1 to 1,000 belongs"),
    "no layers": (LLAMA | {"num_hidden_layers": 0}, "num_hidden_layers = '0'"),
    "words": (LLAMA | {"hidden_size": "8"}, "hidden_size = '8' where a whole number"),
    "a fraction": (LLAMA | {"hidden_size": 8.5}, "hidden_size = '8.5'"),
    "true": (LLAMA | {"vocab_size": True}, "vocab_size = 'True'"),
    "a number like a book": (LLAMA | {"hidden_size": 10**400}, "hidden_size = '1000"),
    "heads that do not fit": (LLAMA | {"num_attention_heads": 3, "num_key_value_heads": 3}, "leaves a remainder"),
    "groups that do not fit": (LLAMA | {"num_key_value_heads": 3}, "4 heads for 3 key-value heads"),
    "experts without a choice": (LLAMA | {"num_local_experts": 8}, "lacks num_experts_per_tok"),
    "more experts than there are": (LLAMA | {"num_experts": 4, "num_experts_per_tok": 5}, "from 1 to 4 belongs"),
    "lists for names": (LLAMA | {"model_type": ["bert"], "architectures": {"a": 1}, "kv_lora_rank": []}, None),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_config_that_cannot_be_counted_is_refused_in_one_sentence(case):
    config, message = REFUSED[case]
    if message is None:
        assert read_shape(config).layers == 2, "strange values where nothing depends on them"
        return
    with pytest.raises(BadModel) as caught:
        read_shape(config)
    sentence = str(caught.value)
    assert message in sentence and "\n" not in sentence and sentence.endswith(".") and len(sentence) < 400


@pytest.mark.parametrize(
    "text", ["", "no", "{", "[" * 200_000, "1" * 5000, '{"a": ' * 3000, "\0\xff", "[1]", '"x"', "null"]
)
def test_what_is_no_config_file_is_refused(text):
    with pytest.raises(BadModel, match="not valid JSON|an object in braces") as caught:
        read_config(text, "a.json")
    assert str(caught.value).startswith("a.json ")


def test_a_huge_file_is_refused_unread():
    with pytest.raises(BadModel, match="larger than 1 MB"):
        read_config("{" * 1_000_001)
