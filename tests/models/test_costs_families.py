"""Costs from config.json against the model that transformers makes of it, of every kind: all its matrices, and what its
cache holds after a text; what is counted of a loaded model is the same, and by hand for one hybrid."""

import json
import re

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModel, AutoModelForCausalLM

from analysis.costs import Uncounted, cache_bytes, coefficients, read_shape
from analysis.costs.families import FAMILIES, UNCOUNTED
from analysis.errors import BadModel
from analysis.metrics.budgets import keys_left
from analysis.models import load_model
from analysis.models.counted import counted
from analysis.models.own import has_indexer
from analysis.seam.arguments import past_of
from analysis.seam.layers import attention_modules
from analysis.seam.parity import small_config
from analysis.studies.budgets.edited import held_bytes
from tests.made.families import BY_KIND, configured, small, token_ids
from tests.made.tiny_tokenizer import byte_level

SOON = ("gpt_oss", "deepseek_v32", "qwen3_next", "gemma4_text", "llama4_text", "minimax_m3_vl_text", "nemotron_h")
SOON += ("mixtral", "qwen2_moe", "qwen3_moe", "olmoe")
FURTHER = ("deepseek_v4", "glm4_moe", "llama4_text", "recurrent_gemma", "qwen3_5_moe_text", "mimo_v2_flash", "afmoe")
FURTHER += ("jetmoe", "zaya", "beam", "bailing_hybrid", "lara_mini")
FURTHER += ("mixtral", "qwen2_moe", "qwen3_moe", "olmoe")
FURTHER += ("granitemoe", "ernie4_5_moe", "minimax_m2", "exaone_moe", "cohere2_moe", "hy_v3", "axk1", "apertus")
NAMES = dict.fromkeys([param.values[0] for param in BY_KIND] + list(FURTHER))
CASES = [pytest.param(name, marks=() if name in SOON else pytest.mark.slow) for name in NAMES if name not in UNCOUNTED]
# In transformers the experts that do nothing have the first of their two matrices all the same.
IDLE = "longcat_flash"
# It is counted without the tokens that wait for their entry.
WAITING = "deepseek_v4"
TEXT = 40


def described(config) -> dict:
    return json.loads(config.to_json_string(use_diff=False)) | {"dtype": "float32"}


def sized(family: str):
    """A family's configuration, with heads that divide its width where its own default has others."""
    return configured(family, **({"head_dim": 128} if family == "glm4_moe" else {}))


@pytest.mark.parametrize("family", [case for case in CASES if case.values[0] != IDLE])
def test_a_family_has_the_matrices_of_the_real_model(family):
    config = sized(family)
    with torch.device("meta"):
        lm = AutoModelForCausalLM.from_config(config)
    lm.tie_weights()
    real = sum(p.numel() for name, p in lm.named_parameters() if p.ndim > 1 and not name.endswith(".bias"))
    counted = read_shape(described(config))
    assert counted.family in FAMILIES and counted.parameters == pytest.approx(real, rel=2e-3)


def test_a_family_without_a_model_of_its_text_has_its_matrices_and_an_output_head():
    """Mistral Large 4, in which the third layer reads the latent of the second, and the fourth turns nothing."""
    config = CONFIG_MAPPING["mistral_large4_text"](
        num_hidden_layers=4, kv_source_layers=[0, 1, 1, 3], index_topk_pattern="FSFS"
    )
    with torch.device("meta"):
        model = AutoModel.from_config(config)
    real = sum(p.numel() for p in model.parameters() if p.ndim > 1)
    counted = read_shape(described(config))
    assert counted.parameters == pytest.approx(real + config.hidden_size * config.vocab_size, rel=2e-3)
    numbers = 3 * config.kv_lora_rank + 2 * config.qk_rope_head_dim + 2 * config.index_head_dim
    assert counted.token_bytes == 4 * numbers, "one latent is not held twice"


def test_experts_that_do_nothing_cost_nothing():
    """LongCat-Flash (arXiv 2509.01322): 560 billion weights, 27 billion active on average of its 12 of 768 experts, 256
    of which do nothing."""
    counted = read_shape(described(configured(IDLE)))
    assert round(counted.parameters / 1e9) in (560, 561) and round(counted.active / 1e9) == 27


def floats(value, tensors: dict) -> dict:
    """The floating-point tensors anywhere in a cache, each once."""
    if isinstance(value, torch.Tensor):
        tensors[id(value)] = value
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            floats(part, tensors)
    elif type(value).__module__.startswith("transformers") and "onfig" not in type(value).__name__:
        floats(vars(value), tensors)
    return tensors


@pytest.mark.parametrize("family", [case for case in CASES if case.values[0] not in (WAITING, "recurrent_gemma")])
def test_a_cache_holds_what_is_counted(family):
    """In transformers a window lacks the token that comes next."""
    config = small_config(sized(family))
    lm = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        cache = floats(past_of(lm(torch.arange(TEXT)[None] % 20 + 3, use_cache=True)), {})
    real = sum(value.numel() for value in cache.values() if value.is_floating_point())
    counted = read_shape(described(config))
    entries = [entry for layer in counted.stack for entry in layer.entries]
    waiting = sum(entry.numbers for entry in entries if entry.capacity and not entry.shared)
    assert cache_bytes(counted, TEXT) == 4 * (real + waiting)


@pytest.mark.parametrize("family", UNCOUNTED)
def test_what_cannot_be_counted_is_refused_with_what_it_has(family):
    with pytest.raises(BadModel, match=f"has {re.escape(UNCOUNTED[family])}, which is not counted"):
        read_shape({"model_type": family})


LENGTH = 48


def loaded(family: str):
    return load_model(small(family), tokenizer=byte_level())


@pytest.mark.parametrize("family", BY_KIND)
def test_latents_and_indexers_are_those_of_the_modules(family):
    model = loaded(family)
    try:
        shape = counted(model)
    except Uncounted:
        pytest.skip("not counted")
    modules = attention_modules(model.lm)
    assert shape.chooses == has_indexer(model)
    assert (shape.latent > 0) == any(hasattr(module, "kv_lora_rank") for module in modules)
    cache_before, left = held_bytes(model, shape, [[LENGTH] * model.num_heads] * model.num_layers, LENGTH, LENGTH)
    assert cache_before == left == cache_bytes(shape, LENGTH)


def test_a_hybrid_by_hand():
    """Qwen3-Next, float32: of its layers two read keys (2 heads of 16 in float32), the others carry a matrix of 8 by 8
    for each value head and 4 tokens of their convolution."""
    model = loaded("qwen3_next")
    config = model.lm.config
    reading, stateless = model.num_layers, len(model.other_layers)
    keys = 2 * config.num_key_value_heads * config.head_dim
    size, value = config.linear_key_head_dim, config.linear_value_head_dim
    mixed = 2 * config.linear_num_key_heads * size + config.linear_num_value_heads * value
    state = config.linear_num_value_heads * size * value + config.linear_conv_kernel_dim * mixed
    assert reading and stateless
    shape = counted(model)
    assert cache_bytes(shape, LENGTH) == 4 * (reading * LENGTH * keys + stateless * state)
    with torch.no_grad():
        cache = past_of(model.lm(token_ids(model.lm, length=LENGTH), use_cache=True))
    key_states = [layer.keys for layer in cache.layers if getattr(layer, "keys", None) is not None]
    assert sum(2 * states.nbytes for states in key_states) == 4 * reading * LENGTH * keys
    # two keys of each head stay, those of heads that share a key-value head beside each other
    cache_before, left = held_bytes(model, shape, [[2] * model.num_heads] * reading, 2, LENGTH)
    stay = keys_left([[2] * model.num_heads], 2, LENGTH, config.num_key_value_heads).sum()
    assert cache_before - left == 4 * reading * (LENGTH * keys - stay * 2 * config.head_dim)
    # an update and a reading of every number of a state, beside two for each active weight
    factors = coefficients(shape)
    assert factors["token_flops"] + factors["once_flops"] == 2 * shape.active + 4 * stateless * state


def test_budgets_shrink_no_latent():
    """DeepSeek-V3.2: a latent, its rotary part and a key of the indexer for each token and layer."""
    model = loaded("deepseek_v32")
    config, shape = model.lm.config, counted(model)
    numbers = config.kv_lora_rank + config.qk_rope_head_dim + config.index_head_dim
    cache_before, left = held_bytes(model, shape, [[2] * model.num_heads] * model.num_layers, 2, LENGTH)
    assert cache_before == left == 4 * model.num_layers * LENGTH * numbers
