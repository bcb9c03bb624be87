"""The contract matrix: every method on every tiny model keeps the promises of the seam."""

import copy

import psutil
import pytest
import torch
from transformers import LlamaConfig

from analysis.attention import BLOCK_BYTES, apply, ran
from analysis.errors import AnalysisError, BadModel, BadSetting, NotFitted
from analysis.fitted import Fitted
from analysis.groups.router import FocusRouter
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.methods.focal_learned import FocalWeights
from analysis.models import load_model, refuse_family
from tests.routed import made_state
from tests.tiny import FAMILIES, GROUPED, LAYERS, WIDTH, left_padded, tiny, token_ids


class AllKeys(Method):
    """Dense attention through the block path, to hold it against the stock eager model."""


def router(groups=4, top=1, window=8, seed=0) -> FocusRouter:
    made = FocusRouter(LAYERS, WIDTH, groups=groups, top=top, window=window, seed=seed)
    return made.scale_to([torch.randn(256, WIDTH, generator=torch.Generator().manual_seed(1)) for _ in range(LAYERS)])


SAMPLED = {"bits": 3, "tables": 6, "window": 4, "n_sink": 1, "dense_every": 2}


def means(heads=4, dim=8) -> Fitted:
    """Random means of queries and keys, and a largest norm, for the tiny models."""
    draw = torch.Generator().manual_seed(0)
    made = {"query": (LAYERS, heads, dim), "key": (LAYERS, 1, dim)}
    made = {name: torch.randn(shape, generator=draw) for name, shape in made.items()}
    return Fitted("magicpig", made | {"norm": torch.full((LAYERS, 1), 9.0)})


def clusters(count=5, dim=8) -> Fitted:
    """Random centroids for the tiny models, the same for all heads."""
    made = torch.randn(2, LAYERS, 1, count, dim, generator=torch.Generator().manual_seed(0))
    made = torch.nn.functional.normalize(made, dim=-1)
    return Fitted("routing_transformer", dict(zip(("kept", "undone"), made, strict=True)))


CASES = {
    "dense": lambda: METHODS["dense"](),
    "focus": lambda: METHODS["focus"].of(router()),
    "focus top 2 with sinks": lambda: METHODS["focus"].of(router(6, 2), n_sink=2),
    "focus soft": lambda: METHODS["focus"].of(router(), reading="soft"),
    "streaming_llm": lambda: METHODS["streaming_llm"](n_sink=2, window=6),
    "oracle_topk": lambda: METHODS["oracle_topk"](k=5),
    "oracle_topk by fraction": lambda: METHODS["oracle_topk"](fraction=0.25, keep_window=3),
    "focal": lambda: METHODS["focal"](t=0.7),
    "focal by layer": lambda: METHODS["focal"](by_layer=(0.5, 1.0, 1.5)),
    "focal_learned": lambda: METHODS["focal_learned"].from_weights(warm()),
    "focal_learned by token": lambda: METHODS["focal_learned"].from_weights(warm(), mean="token", tau_max=11.31),
    "csa": lambda: METHODS["csa"].from_policy([*range(2, 14), 9]),
    "bucket_routing": lambda: METHODS["bucket_routing"].from_state(made_state(), visited=2, window=4, n_sink=1),
    "bucket_routing by centroid": lambda: METHODS["bucket_routing"].from_state(made_state(), router="kmeans", window=3),
    "longformer": lambda: METHODS["longformer"](window=6, n_global=1),
    "longformer growing and dilated": lambda: METHODS["longformer"](window=5, widths="growing", dilation=3),
    "quest": lambda: METHODS["quest"](budget=12, page=4, dense_layers=1),
    "sparq": lambda: METHODS["sparq"](k=6, channels=3, local=2),
    "sparq without reallocation": lambda: METHODS["sparq"](k=6, channels=3, local=2, reallocate="none"),
    "magicpig": lambda: METHODS["magicpig"](means(), **SAMPLED),
    "magicpig hub": lambda: METHODS["magicpig"](means(), **SAMPLED, variant="hub"),
    "routing_transformer": lambda: METHODS["routing_transformer"](clusters(), window=4, n_sink=1),
    "routing_transformer undone": lambda: METHODS["routing_transformer"](clusters(), window=3, rotary="undone"),
    "performer": lambda: METHODS["performer"](features=24),
    "csa eviction": lambda: METHODS["csa"].from_policy([*range(2, 14), 9], eviction="at the budget"),
}


REFUSED = {("performer", "gemma2")}  # by name: its scores are capped (tests/test_performer.py)


@pytest.fixture(autouse=True)
def taken(request):
    """Leaves out the methods that refuse a family."""
    given = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    if (given.get("case"), given.get("family")) in REFUSED:
        pytest.skip("this method refuses this family")


def warm(seed=0):
    """Weights that keep the temperature between its limits, different from token to token."""
    made = FocalWeights(LAYERS, WIDTH, offset=7.5)
    with torch.no_grad():
        made.w.copy_(torch.randn(LAYERS, WIDTH, generator=torch.Generator().manual_seed(seed)) * 0.03)
    return made


def logits(lm, **inputs):
    with torch.no_grad():
        return lm(**inputs, use_cache=False).logits


def test_every_method_is_in_the_matrix():
    assert set(METHODS) == {name.split()[0] for name in CASES}


@pytest.mark.parametrize("family", FAMILIES)
def test_dense_equals_the_stock_model(family):
    lm, ids = tiny(family), token_ids()
    stock = logits(lm, input_ids=ids)
    with apply(lm, METHODS["dense"]()):
        assert (logits(lm, input_ids=ids) - stock).abs().max() < 1e-5
    with apply(lm, AllKeys()):
        assert torch.equal(logits(lm, input_ids=ids), stock), "same path: bit for bit"


@pytest.mark.parametrize("family", FAMILIES)
def test_dense_equals_the_stock_model_with_left_padding(family):
    lm, (ids, mask) = tiny(family), left_padded(3)
    stock = logits(lm, input_ids=ids, attention_mask=mask)
    for method in (METHODS["dense"](), AllKeys()):
        with apply(lm, method):
            mine = logits(lm, input_ids=ids, attention_mask=mask)
        assert (mine - stock)[mask.bool()].abs().max() < 1e-5


@pytest.mark.parametrize("family", FAMILIES)
def test_dense_generates_the_same_tokens(family):
    lm, (ids, mask) = tiny(family), left_padded(2, 20)
    options = dict(input_ids=ids, attention_mask=mask, max_new_tokens=12, do_sample=False)
    stock = lm.generate(**options)
    for method in (METHODS["dense"](), AllKeys()):
        with apply(lm, method):
            assert torch.equal(lm.generate(**options), stock)


@pytest.mark.parametrize("family", FAMILIES)
def test_dense_through_a_static_cache(family):
    lm, ids = tiny(family), token_ids(1, 20)
    options = dict(max_new_tokens=8, do_sample=False, cache_implementation="static", disable_compile=True)
    stock = lm.generate(ids, **options)
    with apply(lm, AllKeys()):
        assert torch.equal(lm.generate(ids, **options), stock)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("case", CASES)
def test_a_later_token_changes_nothing_before_it(family, case):
    lm, ids = tiny(family), token_ids()
    changed = ids.clone()
    changed[:, 30:] = token_ids(seed=9)[:, 30:]
    with apply(lm, CASES[case]()):
        a, b = logits(lm, input_ids=ids), logits(lm, input_ids=changed)
    assert (a - b)[:, :30].abs().max() < 1e-5
    assert (a - b)[:, 30:].abs().max() > 1e-3, "the change itself must be seen"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("case", CASES)
def test_decoding_with_a_cache_equals_one_pass(family, case):
    lm, (ids, mask) = tiny(family), left_padded(2, 40)
    with apply(lm, CASES[case]()), torch.no_grad():
        whole = logits(lm, input_ids=ids, attention_mask=mask)
        first = lm(input_ids=ids[:, :30], attention_mask=mask[:, :30], use_cache=True)
        steps, past = [first.logits], first.past_key_values
        for at in range(30, 40):
            out = lm(ids[:, at : at + 1], attention_mask=mask[:, : at + 1], past_key_values=past, use_cache=True)
            steps.append(out.logits)
    assert (torch.cat(steps, 1) - whole)[mask.bool()].abs().max() < 1e-4


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("case", CASES)
def test_left_padding_changes_nothing(family, case):
    lm, ids = tiny(family), token_ids(1, 40)
    padded = torch.cat([torch.zeros(1, 6, dtype=torch.long), ids], 1)
    mask = torch.cat([torch.zeros(1, 6, dtype=torch.long), torch.ones_like(ids)], 1)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    with apply(lm, CASES[case]()):
        alone = logits(lm, input_ids=ids)
        beside = logits(lm, input_ids=padded, attention_mask=mask, position_ids=positions)[:, 6:]
    assert (alone - beside).abs().max() < 1e-4


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("case", CASES)
def test_the_model_leaves_as_it_came(family, case):
    lm, ids = tiny(family), token_ids()
    before = {name: value.clone() for name, value in lm.state_dict().items()}
    attributes = {id(m): set(m.__dict__) for m in lm.modules()}
    config, stock = copy.deepcopy(lm.config.to_dict()), logits(lm, input_ids=ids)
    with pytest.raises(ZeroDivisionError), apply(lm, CASES[case]()):
        logits(lm, input_ids=ids)
        raise ZeroDivisionError
    assert all(torch.equal(value, before[name]) for name, value in lm.state_dict().items())
    assert {id(m): set(m.__dict__) for m in lm.modules()} == attributes
    assert not any(m._forward_pre_hooks for m in lm.modules())
    assert lm.config.to_dict() == config and lm.config._attn_implementation == "eager"
    assert torch.equal(logits(lm, input_ids=ids), stock)


def with_empty_groups():
    made = router(6)
    made.potential[:, 2:] = -1e4
    return METHODS["focus"].of(made)


KERNELS = CASES | {
    "focus literal gate": lambda: METHODS["focus"].of(router().variant(gate="literal"), reading="soft"),
    "focus straight through": lambda: METHODS["focus"].of(router(6, 2), reading="straight_through", n_sink=2),
    "focus window 1": lambda: METHODS["focus"].of(router(6, 2), window=1),
    "focus window beyond the text": lambda: METHODS["focus"].of(router(), window=500),
    "focus with empty groups": with_empty_groups,
}
GROUPED_KERNELS = {"groups (torch)", "lowest shared group (torch)"}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("case", KERNELS)
def test_kernels_compute_what_the_masked_path_does(family, case, monkeypatch):
    monkeypatch.setattr("analysis.kernels.plans._cpu_cost", lambda *shape: (0.0, 1.0))  # short texts too
    lm, ids = tiny(family), token_ids(2, 40)
    options = dict(max_new_tokens=41, do_sample=False, eos_token_id=None)
    before = {id(m): set(m.__dict__) for m in lm.modules()}
    with apply(lm, KERNELS[case]()):
        wanted, tokens = logits(lm, input_ids=ids), lm.generate(ids, **options)
        assert case == "dense" or {entry.kernel for entry in ran(lm)} == {"masked blocks"}
    with apply(lm, KERNELS[case](), kernels=True):
        assert (logits(lm, input_ids=ids) - wanted).abs().max() < 1e-5
        assert torch.equal(lm.generate(ids, **options), tokens)
        found = ran(lm)
    assert ran(lm) == [] and {id(m): set(m.__dict__) for m in lm.modules()} == before
    assert {entry.layer for entry in found} == set(range(LAYERS)) and all(entry.why.endswith(".") for entry in found)
    assert sum(entry.calls for entry in found) == LAYERS * (2 + 40)
    exact = case.startswith("focus") and family not in ("mistral", "gemma2")
    kernels = {entry.kernel for entry in found if entry.phase == "prefill"}
    if exact and case in ("focus soft", "focus literal gate", "focus straight through"):
        assert kernels == {"gate on the scores"}
    elif exact:
        assert kernels <= ({"causal (torch)"} if "beyond" in case else GROUPED_KERNELS)
        assert {entry.kernel for entry in found if entry.phase == "decode"} == {"group-major cache"}
    elif case.startswith("focal") and family not in ("mistral", "gemma2"):
        assert kernels == {"torch dense"}
    elif case == "csa" and family not in ("mistral", "gemma2"):
        assert {entry.kernel for entry in found} == {"top-k of all scores", "gathered top-k"}
    elif case == "quest" and family not in ("mistral", "gemma2"):
        assert kernels == {"torch dense", "masked blocks"}, "its first layer, and the others"
    elif case != "dense":
        assert kernels == {"masked blocks"}
    if case.startswith("bucket_routing") and family not in ("mistral", "gemma2"):
        assert {entry.kernel for entry in found if entry.phase == "decode"} == {"gathered buckets"}
    if case == "quest" and family not in ("mistral", "gemma2"):
        assert {entry.kernel for entry in found if entry.phase == "decode"} == {"torch dense", "gathered pages"}


def test_a_kernel_runs_only_where_it_is_exact():
    lm, ids = tiny("llama"), token_ids(1, 20)
    method = METHODS["focus"].of(router())

    def why(model=lm, used=method, **more):
        with apply(model, used, kernels=True, **more):
            model(ids, use_cache=False)
            return {entry.kernel: entry.why for entry in ran(model)}.get("masked blocks", "")

    with torch.no_grad():
        assert why() == "" and "watches" in why(watch=lambda block, probabilities: None)
        assert why(used=METHODS["focus"].of(router(), reading="soft")) == ""
        for more in ({"reading": "straight_through"}, {"membership": "literal"}):
            assert why(used=METHODS["focus"].of(router(), **more)) == ""
        assert "no kernel of its own" in why(used=AllKeys())
    with apply(lm, method, kernels=True):
        lm(ids, use_cache=False)
        assert {entry.kernel for entry in ran(lm)} == {"gate on the scores"}, "the others have no gradient"
    training = copy_of(tiny("gpt2")).train()
    with torch.no_grad():
        assert "dropout" in why(training)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_kernels_in_other_types(dtype):
    lm, ids = copy_of(tiny("llama")).to(dtype), token_ids(2, 40)
    close = 0.1 if dtype == torch.bfloat16 else 1e-6  # the reference takes its softmax in float32
    for case in ("focus", "focus top 2 with sinks"):
        with apply(lm, CASES[case]()):
            wanted = logits(lm, input_ids=ids)
        with apply(lm, CASES[case](), kernels=True), torch.no_grad():
            first = lm(ids[:, :39], past_key_values=CASES[case]().cache(lm), use_cache=True)
            last = lm(ids[:, 39:], past_key_values=first.past_key_values, use_cache=True).logits
        assert (torch.cat([first.logits, last], 1) - wanted).abs().max() < close


@pytest.mark.parametrize("family", FAMILIES)
def test_a_window_over_the_whole_text_is_dense(family):
    lm, ids = tiny(family), token_ids()
    with apply(lm, METHODS["focus"].of(router(), window=48)):
        assert (logits(lm, input_ids=ids) - logits_of(lm, ids)).abs().max() < 1e-5


@pytest.mark.parametrize("settings", [(4, 4), (4, 3), (5, 3)])
def test_memberships_that_must_meet_are_dense(settings):
    groups, top = settings
    lm, ids = tiny("llama"), token_ids()
    with apply(lm, METHODS["focus"].of(router(groups, top), window=1)):
        assert (logits(lm, input_ids=ids) - logits_of(lm, ids)).abs().max() < 1e-5


def logits_of(lm, ids):
    """The stock logits, while a method is applied elsewhere: a copy of the model."""
    return logits(copy_of(lm), input_ids=ids)


def copy_of(lm):
    fresh = type(lm)(lm.config)
    fresh.load_state_dict(lm.state_dict())
    fresh.set_attn_implementation("eager")
    return fresh.eval()


def test_literal_membership_reads_the_future_and_says_so():
    lm, ids = tiny("llama"), token_ids()
    changed = ids.clone()
    changed[:, 30:] = token_ids(seed=9)[:, 30:]
    literal = METHODS["focus"].of(router(), membership="literal", reading="soft")
    with apply(lm, literal):
        assert (logits(lm, input_ids=ids) - logits(lm, input_ids=changed))[:, :30].abs().max() > 1e-4
        with pytest.raises(BadSetting, match="token by token"):
            lm.generate(ids, max_new_tokens=3, do_sample=False)


def test_blocks_of_queries_do_not_change_the_result(monkeypatch):
    lm, ids = tiny("llama"), token_ids()
    for case in CASES.values():
        with apply(lm, case()):
            whole = logits(lm, input_ids=ids)
        with monkeypatch.context() as m, apply(lm, case()):
            m.setattr("analysis.attention.BLOCK_BYTES", 4 * 2 * 4 * 48 * 7)
            assert (logits(lm, input_ids=ids) - whole).abs().max() < 1e-5


def test_a_watch_sees_every_probability():
    lm, ids, seen = tiny("mistral"), token_ids(1, 40), {}

    def watch(block, probabilities):
        assert torch.allclose(probabilities.sum(-1), torch.ones(()), atol=1e-5)
        seen.setdefault(block.layer, []).append(probabilities)

    with torch.no_grad():
        stock = lm(ids, output_attentions=True, use_cache=False).attentions
    with apply(lm, METHODS["dense"](), watch=watch):
        logits(lm, input_ids=ids)
    for layer, weights in enumerate(stock):
        assert torch.allclose(torch.cat(seen[layer], 2), weights, atol=1e-6)


def test_beam_search_and_nesting_are_refused():
    lm, ids = tiny("llama"), token_ids(1, 8)
    with apply(lm, METHODS["dense"]()):
        with pytest.raises(AnalysisError, match="3 beams"):
            lm.generate(ids, num_beams=3, max_new_tokens=2)
        with pytest.raises(AnalysisError, match="already applied"), apply(lm, METHODS["dense"]()):
            pass


def test_focus_without_a_router_says_what_to_do():
    with pytest.raises(NotFitted, match="fit"), apply(tiny("llama"), METHODS["focus"]()):
        pass
    with (
        pytest.raises(BadSetting, match="width 16 and the model has"),
        apply(tiny("llama"), METHODS["focus"].of(FocusRouter(LAYERS, 16))),
    ):
        pass


@pytest.mark.parametrize("family", ["gptj", "gpt_neo", "falcon", "bloom", "mpt", "gpt_oss"])
def test_families_that_bypass_the_interface_are_refused_by_name(family):
    from transformers import AutoConfig

    with pytest.raises(BadModel, match="(?i)" + family.replace("_", "-").replace("gptj", "gpt-j")):
        refuse_family(AutoConfig.for_model(family))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_already_held_is_taken_as_it_is(family):
    model = load_model(tiny(family))
    assert (model.num_layers, model.num_heads, model.head_dim, model.max_positions) == (LAYERS, 4, 8, 512)
    assert model.num_kv_heads == (4 if family in ("gpt2", "gpt_neox") else 2)
    assert model.width == WIDTH and model.revision.startswith("memory-")


def test_sixteen_thousand_tokens_allocate_nothing_of_size_t_by_t():
    length, process, memory = 16384, psutil.Process(), []
    lm = type(tiny("llama"))(
        LlamaConfig(**{**GROUPED, "num_hidden_layers": 1, "max_position_embeddings": length})
    ).eval()
    ids = token_ids(1, length)
    before = process.memory_info().rss

    def watch(block, probabilities):
        assert probabilities.numel() * 4 <= BLOCK_BYTES
        assert block.visible.numel() < length * length // 8
        memory.append(process.memory_info().rss)

    for watching in (None, watch):
        with apply(lm, METHODS["dense"](), watch=watching), torch.no_grad():
            lm.model(ids, use_cache=False)
        memory.append(process.memory_info().rss)
    assert len(memory) > 10
    assert max(memory) - before < length * length * 4, "less than one float32 T x T of a single head"
