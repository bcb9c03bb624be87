"""What is counted of a loaded model: the same as its config.json says, of every kind, and by hand for one hybrid."""

import pytest
import torch

from analysis.costs import Uncounted, cache_bytes, coefficients
from analysis.metrics.budgets import keys_left
from analysis.models import load_model
from analysis.models.counted import counted
from analysis.models.own import has_indexer
from analysis.seam.arguments import past_of
from analysis.seam.layers import attention_modules
from analysis.studies.budgets.edited import held_bytes
from tests.made.families import BY_KIND, small, token_ids
from tests.made.tiny_tokenizer import byte_level

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
