"""Bucket routing by hand, at its limits, as it decodes, and the vectors it routes by."""

import pytest
import torch

from analysis.errors import BadModel, BadSetting, NotFitted
from analysis.kernels.gathered import gathered_attention, visits_keys
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.methods.bucket_routing import KINDS, BucketRouting
from analysis.metrics.sparsity import ReadCounter
from analysis.models import load_model
from analysis.routers.rotation import turned, unrotate
from analysis.seam.arguments import as_past
from analysis.seam.attention import apply, ran
from analysis.seam.cache import GrowingCache, cache_bytes
from analysis.studies.routing.passes import read_prompt, rotated_layers
from analysis.timing.inference import time_inference
from tests.made.routed import made_state
from tests.made.tiny import BY_KIND, FAMILIES, GROUPED, LAYERS, tiny, token_ids

C = 6


def routing(**settings) -> BucketRouting:
    return BucketRouting.build(made_state(C), **{"visited": 2, "window": 4, "n_sink": 1, **settings})


def rotate(x, module, tables):
    """What the model itself makes of x [B, heads, n, D]: the inverse of `unrotate`."""
    return x if tables is None else turned(x, module, *(table.to(x) for table in tables))


def logits(lm, ids):
    with torch.no_grad():
        return lm(ids, use_cache=False).logits


# --- vectors --------------------------------------------------------------------------------------------------------


class Seen(Method):
    """Keeps what `file` is given."""

    def __post_init__(self):
        super().__post_init__()
        self.calls = []

    def encode_tokens(self, layer, query, key, past, module, tables):
        self.calls.append((layer, query.clone(), key.clone(), past, module, tables))


@pytest.mark.parametrize("family", FAMILIES)
def test_vectors_without_their_rotation_and_back(family):
    lm, method = tiny(family), Seen()
    with apply(lm, method):
        logits(lm, token_ids(2, 30))
    assert [call[0] for call in method.calls] == list(range(LAYERS))
    for _, query, key, past, module, tables in method.calls:
        assert past == 0 and (tables is None) == (family == "gpt2")
        for x in (query, key):
            plain = unrotate(x, module, tables)
            assert (rotate(plain, module, tables) - x).abs().max() < 1e-5 * x.abs().max()
            assert torch.equal(plain, x) == (family == "gpt2")
            if tables is not None:
                turned = tables[0].shape[-1]  # a part of the dimensions in some families
                assert torch.equal(plain[..., turned:], x[..., turned:]) and plain[:, :, 0].allclose(x[:, :, 0])


@pytest.mark.parametrize("family", ["llama", "qwen2", "mistral", "gpt_neox"])
def test_unrotated_vectors_are_what_the_projections_give(family):
    lm, method, before = tiny(family), Seen(), {}

    def note(module, args, out):
        before[id(module)] = out.detach()

    hooks = [m.register_forward_hook(note) for n, m in lm.named_modules() if n.endswith(("k_proj", "query_key_value"))]
    try:
        with apply(lm, method):
            logits(lm, token_ids(1, 20))
    finally:
        for hook in hooks:
            hook.remove()
    for _, _, key, _, module, tables in method.calls:
        heads, dim = key.shape[1], key.shape[-1]
        if family == "gpt_neox":
            out = before[id(module.query_key_value)].view(1, 20, heads, 3 * dim)[..., dim : 2 * dim]
        else:
            out = before[id(module.k_proj)].view(1, 20, heads, dim)
        assert (unrotate(key, module, tables) - out.transpose(1, 2)).abs().max() < 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_which_layers_rotate_is_found_out(family):
    assert rotated_layers(load_model(tiny(family))) == [family != "gpt2"] * LAYERS


def scaled(**parameters):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(**GROUPED, rope_parameters={"rope_theta": 10000.0, **parameters})
    return LlamaForCausalLM(config).eval()


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
    lm, method = scaled(**parameters), Seen()
    assert rotated_layers(load_model(lm)) == [True] * LAYERS
    with apply(lm, method):
        logits(lm, token_ids(1, 40))
    for _, query, _, _, module, tables in method.calls:
        assert (rotate(unrotate(query, module, tables), module, tables) - query).abs().max() < 1e-5


def test_layers_that_do_not_rotate_and_ones_that_cannot_be_undone(monkeypatch):
    from transformers import SmolLM3Config, SmolLM3ForCausalLM

    torch.manual_seed(0)
    lm = SmolLM3ForCausalLM(SmolLM3Config(**GROUPED, no_rope_layers=[1, 0, 1])).eval()
    assert rotated_layers(load_model(lm)) == [True, False, True]
    monkeypatch.setattr("analysis.studies.routing.passes.unrotate", lambda x, module, tables: x)
    with pytest.raises(BadModel, match="rotation of layer 0 .* cannot be undone"):
        rotated_layers(load_model(tiny("llama")))
    monkeypatch.undo()
    monkeypatch.delattr("transformers.models.llama.modeling_llama.apply_rotary_pos_emb")
    with pytest.raises(BadModel, match="rotates its queries and keys in a way that cannot be undone"):
        unrotate(torch.zeros(1, 1, 1, 8), _module("llama"), (torch.ones(1, 1, 8), torch.zeros(1, 1, 8)))


def _module(family):
    from analysis.seam.layers import attention_modules

    return attention_modules(tiny(family))[0]


# --- the method -----------------------------------------------------------------------------------------------------


def test_by_hand():
    """One layer's mask against a loop over queries, keys and heads."""
    lm, ids, read, state = tiny("llama"), token_ids(1, 30), {}, made_state(C)
    method = routing()
    vectors = {}

    def take(layer, queries, keys):
        vectors[layer] = queries, keys

    read_prompt(load_model(lm), ids[0].numpy(), [True] * LAYERS, take)
    with apply(lm, method, watch=lambda block, p: read.setdefault(block.layer, block.read[0])):
        logits(lm, ids)
    queries, keys = vectors[0]
    router = state.router("gwr_linear", 0, 4)
    for head in range(4):
        labels = (keys[head // 2] @ state.centroids(0)[head].T).argmax(-1).tolist()
        visited = (queries[head] @ router.weights_[head]).topk(2).indices.tolist()
        for i in range(30):
            wanted = [j <= i and (i - j < 4 or j < 1 or labels[j] in visited[i]) for j in range(30)]
            assert read[0][head, i].tolist() == wanted


@pytest.mark.parametrize("family", BY_KIND)
def test_visiting_all_buckets_is_dense(family):
    lm, ids = tiny(family), token_ids()
    stock = logits(lm, ids)
    for router in KINDS:
        with apply(lm, routing(router=router, visited=C)):
            assert (logits(lm, ids) - stock).abs().max() < 1e-5


@pytest.mark.parametrize("router", KINDS)
def test_every_router_generates_what_one_pass_says(router):
    lm, ids = tiny("llama"), token_ids(1, 24)
    with apply(lm, routing(router=router)):
        tokens = lm.generate(ids, max_new_tokens=12, do_sample=False, eos_token_id=None)
        whole = logits(lm, tokens[:, :-1]).argmax(-1)[:, 23:]
    assert torch.equal(whole, tokens[:, 24:]), "token by token as in one pass"
    with apply(lm, routing(router=router), kernels=True):
        assert torch.equal(lm.generate(ids, max_new_tokens=12, do_sample=False, eos_token_id=None), tokens)
        kernels = {(entry.phase, entry.kernel) for entry in ran(lm)}
    assert kernels == {("prefill", "masked blocks"), ("decode", "gathered buckets")}


def test_a_step_gathers_exactly_what_is_read():
    draw = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, n, t, 8, generator=draw) for n, t in ((4, 1), (2, 50), (2, 50)))
    labels = torch.randint(0, C, (2, 2, 50), generator=draw)
    visits = torch.rand(2, 4, 1, C, generator=draw) < 0.4
    read = visits_keys(labels, visits)[:, :, 0]
    for b in range(2):
        for h in range(4):
            assert read[b, h].tolist() == [bool(visits[b, h, 0, c]) for c in labels[b, h // 2]]
    read[..., -1] = True
    scores = (q @ k.repeat_interleave(2, 1).mT * 0.3).masked_fill(~read[:, :, None], float("-inf"))
    wanted = torch.softmax(scores, -1) @ v.repeat_interleave(2, 1)
    assert (gathered_attention(q, k, v, read, 0.3) - wanted).abs().max() < 1e-5


def test_reads_count_the_routers_own_vectors():
    lm, counter, method = tiny("llama"), ReadCounter(40), routing(visited=C)
    with apply(lm, method, watch=counter):
        logits(lm, token_ids(1, 40))
    reads = counter.reads(method)
    assert reads.reads_causal == 1.0
    assert reads.kv_read == pytest.approx(1 + C / 2 * 40 / (40 * 41 / 2)), "C / 2 + attended (definitions 2.14)"


def test_its_time_can_be_measured():
    model = load_model(tiny("llama"), tokenizer=None)
    found = time_inference(model, routing(), token_ids(1, 40)[0], 4, repeats=1)
    assert found.sparse.kernel == "prefill: masked blocks; decode: gathered buckets"
    assert found.sparse.ms_per_token["median"] > 0 and found.step_parts["router"] > 0 and found.step_parts["sort"] > 0


def test_its_cache_is_the_growing_one():
    lm, ids, method = tiny("llama"), token_ids(1, 20), routing()
    with apply(lm, method, kernels=True), torch.no_grad():
        cache = method.cache(lm)
        lm(ids, **as_past(lm, cache), use_cache=True)
        lm(ids[:, :1], **as_past(lm, cache), use_cache=True)
    assert isinstance(cache, GrowingCache) and cache.get_seq_length() == 21 and cache_bytes(cache)[0] > 0


def test_what_it_cannot_run_on_is_refused():
    lm = tiny("llama")

    def enter(method, model=lm):
        with apply(model, method):
            pass

    with pytest.raises(NotFitted, match="no buckets yet"):
        enter(METHODS["bucket_routing"]())
    with pytest.raises(BadSetting, match="7 buckets were to be visited, and there are 6"):
        enter(routing(visited=7))
    with pytest.raises(BadSetting, match="router of Bucket routing is .oracle. and must be one of"):
        routing(router="oracle")
    with pytest.raises(BadSetting, match="made for 2 layers"):
        enter(BucketRouting.build(made_state(C, layers=2)))
    state = made_state(C)
    state.tensors = {name: value for name, value in state.tensors.items() if not name.startswith("mlp")}
    with pytest.raises(NotFitted, match="router mlp was not fitted .* gwr_linear"):
        enter(BucketRouting.build(state, router="mlp"))
    made = BucketRouting.build(made_state(C))
    assert (made.window, made.n_sink, made.visited) == (4, 1, 4), "what it was fitted for"
