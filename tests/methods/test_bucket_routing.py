"""Bucket routing by hand, as it decodes, and the vectors it routes by."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, SmolLM3Config, SmolLM3ForCausalLM

from analysis.errors import BadModel, BadSetting, NotFitted
from analysis.kernels.gathered import visits_keys
from analysis.methods.bucket_routing import KINDS, BucketRouting
from analysis.models import load_model
from analysis.routers.rotation import turned, unrotate
from analysis.seam.attention import apply, ran
from analysis.seam.layers import attention_modules
from analysis.studies.routing.passes import read_prompt, rotated_layers
from tests.made.passes import logits, seen, watched
from tests.made.routed import made_state
from tests.made.tiny import FAMILIES, GROUPED, LAYERS, tiny, token_ids

C = 6


def routing(**settings) -> BucketRouting:
    return BucketRouting.build(made_state(C), **{"visited": 2, "window": 4, "n_sink": 1, **settings})


def rotate(x, module, tables):
    """What the model itself makes of x [B, heads, n, D]: the inverse of `unrotate`."""
    return x if tables is None else turned(x, module, *(table.to(x) for table in tables))


@pytest.mark.parametrize("family", FAMILIES)
def test_vectors_without_their_rotation_and_back(family):
    tokens = seen(tiny(family), token_ids(2, 30)).tokens
    assert list(tokens) == list(range(LAYERS))
    for *states, module, tables in tokens.values():
        assert (tables is None) == (family == "gpt2")
        for x in states:
            plain = unrotate(x, module, tables)
            assert (rotate(plain, module, tables) - x).abs().max() < 1e-5 * x.abs().max()
            assert torch.equal(plain, x) == (family == "gpt2")
            if tables is not None:
                size = tables[0].shape[-1]  # a part of the dimensions in some families
                assert torch.equal(plain[..., size:], x[..., size:]) and plain[:, :, 0].allclose(x[:, :, 0])
    assert rotated_layers(load_model(tiny(family))) == [family != "gpt2"] * LAYERS


@pytest.mark.parametrize("family", ["llama", "qwen2", "mistral", "gpt_neox"])
def test_unrotated_vectors_are_what_the_projections_give(family):
    lm, before = tiny(family), {}

    def note(module, args, out):
        before[id(module)] = out.detach()

    hooks = [m.register_forward_hook(note) for n, m in lm.named_modules() if n.endswith(("k_proj", "query_key_value"))]
    try:
        tokens = seen(lm, token_ids(1, 20)).tokens
    finally:
        for hook in hooks:
            hook.remove()
    for _, key, module, tables in tokens.values():
        heads, dim = key.shape[1], key.shape[-1]
        if family == "gpt_neox":
            out = before[id(module.query_key_value)].view(1, 20, heads, 3 * dim)[..., dim : 2 * dim]
        else:
            out = before[id(module.k_proj)].view(1, 20, heads, dim)
        assert (unrotate(key, module, tables) - out.transpose(1, 2)).abs().max() < 1e-4


@pytest.mark.parametrize(
    "parameters",
    [
        {"rope_type": "linear", "factor": 4.0},
        {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64},
        {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 512},
    ],
    ids=lambda parameters: parameters["rope_type"],
)
def test_scaled_rotations(parameters):
    torch.manual_seed(0)
    lm = LlamaForCausalLM(LlamaConfig(**GROUPED, rope_parameters={"rope_theta": 10000.0, **parameters})).eval()
    assert rotated_layers(load_model(lm)) == [True] * LAYERS
    for query, _, module, tables in seen(lm, token_ids(1, 40)).tokens.values():
        assert (rotate(unrotate(query, module, tables), module, tables) - query).abs().max() < 1e-5


def test_layers_that_do_not_rotate_and_ones_that_cannot_be_undone(monkeypatch):
    torch.manual_seed(0)
    lm = SmolLM3ForCausalLM(SmolLM3Config(**GROUPED, no_rope_layers=[1, 0, 1])).eval()
    assert rotated_layers(load_model(lm)) == [True, False, True]
    monkeypatch.setattr("analysis.studies.routing.passes.unrotate", lambda x, module, tables: x)
    with pytest.raises(BadModel, match="rotation of layer 0 .* cannot be undone"):
        rotated_layers(load_model(tiny("llama")))
    monkeypatch.undo()
    monkeypatch.delattr("transformers.models.llama.modeling_llama.apply_rotary_pos_emb")
    with pytest.raises(BadModel, match="rotates its queries and keys in a way that cannot be undone"):
        module = attention_modules(tiny("llama"))[0]
        unrotate(torch.zeros(1, 1, 1, 8), module, (torch.ones(1, 1, 8), torch.zeros(1, 1, 8)))


def test_by_hand_a_head_reads_the_buckets_it_visits():
    """One layer's mask against a loop over queries, keys and heads."""
    lm, ids, state, vectors = tiny("llama"), token_ids(1, 30), made_state(C), {}

    def take(layer, queries, keys):
        vectors[layer] = queries, keys

    read_prompt(load_model(lm), ids[0].numpy(), [True] * LAYERS, take)
    read = watched(lm, routing(), ids)[0][0].read[0]
    queries, keys = vectors[0]
    router = state.router("gwr_linear", 0, 4)
    for head in range(4):
        labels = (keys[head // 2] @ state.centroids(0)[head].T).argmax(-1).tolist()
        visited = (queries[head] @ router.weights_[head]).topk(2).indices.tolist()
        for i in range(30):
            wanted = [j <= i and (i - j < 4 or j < 1 or labels[j] in visited[i]) for j in range(30)]
            assert read[head, i].tolist() == wanted
    draw = torch.Generator().manual_seed(0)
    labels = torch.randint(0, C, (2, 2, 50), generator=draw)
    visits = torch.rand(2, 4, 1, C, generator=draw) < 0.4
    read = visits_keys(labels, visits)[:, :, 0]
    for b in range(2):
        for h in range(4):
            assert read[b, h].tolist() == [bool(visits[b, h, 0, c]) for c in labels[b, h // 2]]


@pytest.mark.parametrize("router", KINDS)
def test_every_router_generates_what_one_pass_says(router):
    lm, ids = tiny("llama"), token_ids(1, 24)
    options = dict(max_new_tokens=12, do_sample=False, eos_token_id=None)
    with apply(lm, routing(router=router)):
        tokens = lm.generate(ids, **options)
    one_pass = logits(lm, tokens[:, :-1], routing(router=router)).argmax(-1)[:, 23:]
    assert torch.equal(one_pass, tokens[:, 24:]), "token by token as in one pass"
    with apply(lm, routing(router=router), kernels=True):
        assert torch.equal(lm.generate(ids, **options), tokens)
        kernels = {(entry.phase, entry.kernel) for entry in ran(lm)}
    assert kernels == {("prefill", "masked blocks"), ("decode", "gathered buckets")}


def test_the_settings_are_those_it_was_fitted_for_and_unknown_routers_are_refused():
    with pytest.raises(BadSetting, match="router of Bucket routing is 'oracle' and must be one of"):
        routing(router="oracle")
    state = made_state(C)
    state.tensors = {name: value for name, value in state.tensors.items() if not name.startswith("mlp")}
    with pytest.raises(NotFitted, match="router mlp was not fitted .* gwr_linear"):
        BucketRouting.build(state, router="mlp").check(tiny("llama"))
    routing_method = BucketRouting.build(made_state(C))
    assert (routing_method.window, routing_method.n_sink, routing_method.visited) == (4, 1, 4)
