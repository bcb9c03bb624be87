"""What a model itself does beside reading, held against its definition in float64: output gates from what enters a
layer, the mass that an indexer selects from queries and keys, layers of a hybrid by their own numbers."""

import importlib

import numpy as np
import pytest
import torch

from analysis.errors import BadSetting
from analysis.models import load_model
from analysis.models.own import own_reading
from analysis.seam.layers import attention_modules
from analysis.statistics import attention_statistics
from analysis.statistics.states import attention_states
from analysis.studies.text.states import check_head
from tests.made.families import small, token_ids
from tests.made.tiny_tokenizer import byte_level


def read(family):
    """(model, tokens [T], statistics of its heads)."""
    model = load_model(small(family), tokenizer=byte_level())
    ids = token_ids(model.lm)
    return model, ids, attention_statistics(model, ids[0])


def entering(model, ids) -> list[torch.Tensor]:
    """What enters each attention layer of the stock model, float64 [T, d]."""
    entered, handles = [], []
    for module in attention_modules(model.lm):

        def keep(module, args, kwargs):
            entered.append((args[0] if args else kwargs["hidden_states"])[0].double())

        handles.append(module.register_forward_pre_hook(keep, with_kwargs=True))
    try:
        with torch.no_grad():
            model.lm(ids, use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    return entered


def half_of_queries(module, hidden):
    """Qwen3-Next: the second half of each head's query projection, [T, H, D]."""
    both = hidden @ module.q_proj.weight.double().T
    return both.unflatten(-1, (-1, 2 * module.head_dim))[..., module.head_dim :]


def of_its_own(module, hidden):
    """LFM3: a projection of its own, one number a head, [T, H, 1]."""
    return (hidden @ module.g_proj.weight.double().T)[..., None]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "gate"),
    [("qwen3_next", half_of_queries), ("qwen3_5_text", half_of_queries), ("lfm3", of_its_own)],
)
def test_the_mean_gate_is_the_sigmoid_of_what_enters_the_layer(family, gate):
    model, ids, table = read(family)
    modules = attention_modules(model.lm)
    with torch.no_grad():
        pairs = zip(modules, entering(model, ids), strict=True)
        truth = [torch.sigmoid(gate(module, hidden)).mean((0, 2)) for module, hidden in pairs]
    np.testing.assert_allclose(table["gate"], torch.cat(truth), atol=1e-5)
    assert 0 < table["gate"].min() < table["gate"].max() < 1
    assert any("output gate" in sentence for sentence in own_reading(model))
    assert not any(module.o_proj._forward_pre_hooks for module in modules if hasattr(module, "o_proj"))


def test_the_mass_that_the_indexer_selects_is_its_share_of_dense_attention(monkeypatch):
    model, ids, table = read("deepseek_v32")
    truth, length = [], ids.shape[1]
    modeling = importlib.import_module(type(model.lm).__module__)
    eager = modeling.eager_attention_forward

    def dense_beside(module, query, key, value, mask, scaling, **options):
        groups = query.shape[1] // key.shape[1]
        scores = query.double() @ key.double().repeat_interleave(groups, 1).mT * scaling
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(future, float("-inf")).softmax(-1)
        selected = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
        truth.append((weights * selected).sum(-1).mean((0, 2)))
        return eager(module, query, key, value, mask, scaling=scaling, **options)

    monkeypatch.setattr(modeling, "eager_attention_forward", dense_beside)
    with torch.no_grad():
        model.lm(ids, use_cache=False)
    np.testing.assert_allclose(table["selected_mass"], torch.cat(truth), atol=1e-5)
    assert table["selected_mass"].min() < 0.9, "the indexer leaves something out"
    assert any("own indexer" in sentence for sentence in own_reading(model))


def test_a_plain_model_has_nothing_of_its_own_and_a_hybrid_keeps_its_numbers():
    model, _, table = read("deepseek_v3")
    assert not {"gate", "selected_mass", "sink_mass"} & set(table) and own_reading(model) == []
    model, _, table = read("qwen3_next")
    kinds = model.lm.config.layer_types
    numbers = [number for number, kind in enumerate(kinds) if kind == "full_attention"]
    assert sorted(set(table["layer"])) == numbers == list(model.layer_numbers)
    assert set(model.other_layers) == set(range(len(kinds))) - set(numbers)
    assert set(model.other_layers.values()) == {"linear attention"}
    assert [check_head(model, number, 0) for number in numbers] == list(range(model.num_layers))
    with pytest.raises(BadSetting, match="linear attention"):
        check_head(model, min(model.other_layers), 0)


@pytest.mark.parametrize("family", ["deepseek_v32", "minimax_m3_vl_text", "gemma4_text", "gpt_oss"])
def test_kept_queries_and_keys_give_the_attention_among_the_keys_that_the_model_lets_be_read(family):
    model = load_model(small(family), tokenizer=byte_level())
    ids = token_ids(model.lm)
    with torch.no_grad():
        tables = model.lm(ids, output_attentions=True, use_cache=False).attentions
    for layer, states in attention_states(model, ids[0].numpy()).items():
        for head in range(model.num_heads):
            among = tables[layer][0, head] / tables[layer][0, head].sum(-1, keepdim=True)
            assert torch.allclose(states.scores(head, 0, states.length).softmax(-1), among, atol=1e-5)
