"""The contract matrix: every method on every tiny model keeps the promises of the seam."""

import copy

import pytest
import torch

from analysis.fitted import Fitted
from analysis.groups.router import FocusRouter
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.methods.focal import FocalWeights
from analysis.seam.arguments import as_past, past_of
from analysis.seam.attention import apply
from tests.conftest import all_of_them
from tests.made.indexed import made_indexers
from tests.made.routed import made_state
from tests.made.tiny import BY_KIND, FAMILIES, LAYERS, WIDTH, left_padded, tiny, token_ids


class AllKeys(Method):
    """Dense attention through the block path, to hold it against the stock eager model."""


def router(groups=4, top=1, window=8, seed=0) -> FocusRouter:
    fresh = FocusRouter(LAYERS, WIDTH, groups=groups, top=top, window=window, seed=seed)
    return fresh.scale_to([torch.randn(256, WIDTH, generator=torch.Generator().manual_seed(1)) for _ in range(LAYERS)])


SAMPLED = {"bits": 3, "tables": 6, "window": 4, "n_sink": 1, "dense_every": 2}


def means(heads=4, dim=8) -> Fitted:
    """Random means of queries and keys, and a largest norm, for the tiny models."""
    draw = torch.Generator().manual_seed(0)
    tensors = {"query": (LAYERS, heads, dim), "key": (LAYERS, 1, dim)}
    tensors = {name: torch.randn(shape, generator=draw) for name, shape in tensors.items()}
    return Fitted("magicpig", tensors | {"norm": torch.full((LAYERS, 1), 9.0)})


def clusters(count=5, dim=8) -> Fitted:
    """Random centroids for the tiny models, the same for all heads."""
    centroids = torch.randn(2, LAYERS, 1, count, dim, generator=torch.Generator().manual_seed(0))
    centroids = torch.nn.functional.normalize(centroids, dim=-1)
    return Fitted("routing_transformer", dict(zip(("kept", "undone"), centroids, strict=True)))


def heads() -> Fitted:
    """Random scores for the tiny models, the same for all heads of a layer."""
    return Fitted("duo_attention", {"far": torch.rand(LAYERS, 1, generator=torch.Generator().manual_seed(3))})


def mean_queries(heads=4, pairs=4) -> Fitted:
    """Random mean queries for the tiny models, whose heads are taken for half-split."""
    draw = torch.Generator().manual_seed(4)
    tensors = {name: torch.randn(LAYERS, heads, pairs, generator=draw) for name in ("mean_real", "mean_imaginary")}
    tensors["size"] = tensors["mean_real"].abs() + tensors["mean_imaginary"].abs()
    half = torch.arange(pairs, dtype=torch.float32).expand(LAYERS, -1)
    tensors |= {"real": half, "imaginary": half + pairs, "rates": 0.1**half, "factor": torch.ones(LAYERS)}
    return Fitted("triattention", tensors)


def lines() -> Fitted:
    """Random lines for the tiny models, the same for all heads of a layer."""
    draw = torch.Generator().manual_seed(6)
    return Fitted("kvzap", {"weight": torch.randn(LAYERS, 1, WIDTH, generator=draw), "bias": torch.zeros(LAYERS, 1)})


AT = {"cut": 20, "ratio": 0.6}  # the prompt ends after 20 tokens of the text, and few of them are kept
DECODING = {"cut": 20, "budget": 8, "every": 5}
BLOCKS = {"cut": 20, "block": 8}

CASES = {
    "dense": lambda: METHODS["dense"](),
    "focus": lambda: METHODS["focus"].build(router()),
    "focus top 2 with sinks": lambda: METHODS["focus"].build(router(6, 2), n_sink=2),
    "focus soft": lambda: METHODS["focus"].build(router(), reading="soft"),
    "streaming_llm": lambda: METHODS["streaming_llm"](n_sink=2, window=6),
    "streaming_llm in the cache": lambda: METHODS["streaming_llm"](n_sink=2, window=6, positions="cache"),
    "oracle_topk": lambda: METHODS["oracle_topk"](k=5),
    "oracle_topk by fraction": lambda: METHODS["oracle_topk"](fraction=0.25, keep_window=3),
    "focal": lambda: METHODS["focal"](t=0.7),
    "focal by layer": lambda: METHODS["focal"](by_layer=(0.5, 1.0, 1.5)),
    "focal_learned": lambda: METHODS["focal_learned"].build(warm()),
    "focal_learned by token": lambda: METHODS["focal_learned"].build(warm(), mean="token", tau_max=11.31),
    "csa": lambda: METHODS["csa"].build([*range(2, 14), 9]),
    "bucket_routing": lambda: METHODS["bucket_routing"].build(made_state(), visited=2, window=4, n_sink=1),
    "bucket_routing by centroid": lambda: METHODS["bucket_routing"].build(made_state(), router="kmeans", window=3),
    **{
        f"indexer {kind}".removesuffix(" dsa"): lambda kind=kind: METHODS["indexer"].build(
            made_indexers(kind), keys=6, window=4, n_sink=1
        )
        for kind in ("dsa", "qsa", "m3", "moba", "low_rank")
    },
    "layer_reuse": lambda: METHODS["layer_reuse"](k=6, anchors=2),
    "layer_reuse by pattern": lambda: METHODS["layer_reuse"](k=5, pattern="FSS"),
    "longformer": lambda: METHODS["longformer"](window=6, n_global=1),
    "longformer growing and dilated": lambda: METHODS["longformer"](window=5, widths="growing", dilation=3),
    "longformer with keys at random": lambda: METHODS["longformer"](window=3, random=2),
    "quest": lambda: METHODS["quest"](budget=12, page=4, dense_layers=1),
    "sparq": lambda: METHODS["sparq"](k=6, channels=3, local=2),
    "sparq without reallocation": lambda: METHODS["sparq"](k=6, channels=3, local=2, reallocate="none"),
    "magicpig": lambda: METHODS["magicpig"](means(), **SAMPLED),
    "magicpig hub": lambda: METHODS["magicpig"](means(), **SAMPLED, variant="hub"),
    "routing_transformer": lambda: METHODS["routing_transformer"](clusters(), window=4, n_sink=1),
    "routing_transformer undone": lambda: METHODS["routing_transformer"](clusters(), window=3, rotary="undone"),
    "performer": lambda: METHODS["performer"](features=24),
    "oracle_topp": lambda: METHODS["oracle_topp"](p=0.6),
    "snapkv": lambda: METHODS["snapkv"](**AT, window=3),
    "ada_kv": lambda: METHODS["ada_kv"](**AT, window=3),
    "pyramid_kv": lambda: METHODS["pyramid_kv"](**AT, window=2),
    "tova": lambda: METHODS["tova"](**AT),
    "tova while decoding": lambda: METHODS["tova"](**DECODING),
    "h2o": lambda: METHODS["h2o"](**AT),
    "h2o while decoding": lambda: METHODS["h2o"](**DECODING, prompt_keys="protected"),
    "keydiff": lambda: METHODS["keydiff"](**AT),
    "expected_attention": lambda: METHODS["expected_attention"](**AT),
    "duo_attention": lambda: METHODS["duo_attention"].build(heads(), **AT, n_sink=2, window=3),
    "triattention": lambda: METHODS["triattention"].build(mean_queries(), **AT),
    "kvzip_plus": lambda: METHODS["kvzip_plus"](**AT),
    "kvzap": lambda: METHODS["kvzap"].build(lines(), **AT, window=3),
    "kvzap while decoding": lambda: METHODS["kvzap"].build(lines(), **DECODING, window=3),
    "kv_int8": lambda: METHODS["kv_int8"](cut=20, group=16, recent=4),
    "kv_int4": lambda: METHODS["kv_int4"](cut=20, group=8, recent=4),
    "kv_int2": lambda: METHODS["kv_int2"](cut=20, group=8, recent=0),
    "kv_fp8": lambda: METHODS["kv_fp8"](cut=20),
    "kv_turbo": lambda: METHODS["kv_turbo"](cut=20, full_layers=0),
    "snapkv in 4 bits": lambda: METHODS["snapkv"](**AT, window=3, storage="k3v4_nc"),
    "skip_softmax": lambda: METHODS["skip_softmax"](**BLOCKS, scale=8.0),
    "vertical_slash": lambda: METHODS["vertical_slash"](**BLOCKS),
    "flex_prefill": lambda: METHODS["flex_prefill"](**BLOCKS, gamma=0.5),
    "xattention": lambda: METHODS["xattention"](**BLOCKS, stride=4, threshold=0.4),
    "csa int4": lambda: METHODS["csa"].build([*range(2, 14), 9], storage="int4"),
    "csa eviction": lambda: METHODS["csa"].build([*range(2, 14), 9], eviction="at the budget"),
}


# by name: its scores are capped (tests/methods/test_performer.py), it rotates nothing (test_streaming_llm.py)
REFUSED = {("performer", "gemma2"), ("streaming_llm in the cache", "gpt2"), ("triattention", "gpt2")}


# differ from another case in the rule that chooses, not in how they sit in a model: on Llama, in `--all` everywhere
RULES = {
    *("pyramid_kv", "tova", "h2o", "keydiff", "duo_attention", "triattention", "kvzap"),
    *("h2o while decoding", "kvzap while decoding"),
    *("kv_int8", "kv_int2", "kv_fp8"),
    *("skip_softmax", "vertical_slash", "flex_prefill"),
    *("indexer qsa", "indexer m3", "indexer low_rank"),
}


def every_case(family: str, check, config, cases=CASES) -> None:
    """Run `check(case, lm)` for every case on the tiny model of a family; fails with the names of those that failed."""
    lm, failed = tiny(family), []
    left_out = set() if family == "llama" or all_of_them(config) else RULES
    for case in cases:
        if (case, family) in REFUSED or case in left_out:
            continue
        try:
            check(case, lm)
        except AssertionError as error:
            failed.append(f"{case} on {family}: {error}")
    assert not failed, "\n".join(failed)


def warm(seed=0):
    """Weights that keep the temperature between its limits, different from token to token."""
    weights = FocalWeights(LAYERS, WIDTH, offset=7.5)
    with torch.no_grad():
        weights.w.copy_(torch.randn(LAYERS, WIDTH, generator=torch.Generator().manual_seed(seed)) * 0.03)
    return weights


def logits_of(lm, ids):
    """The stock logits, while a method is applied elsewhere: a copy of the model."""
    return logits(copy_of(lm), input_ids=ids)


def copy_of(lm):
    fresh = type(lm)(lm.config)
    fresh.load_state_dict(lm.state_dict())
    fresh.set_attn_implementation("eager")
    return fresh.eval()


def logits(lm, **inputs):
    with torch.no_grad():
        return lm(**inputs, use_cache=False).logits


def test_every_method_is_in_the_matrix():
    assert set(METHODS) == {name.split()[0] for name in CASES}


@pytest.mark.parametrize("family", FAMILIES)
def test_dense_equals_the_stock_model_also_with_left_padding(family):
    lm, ids = tiny(family), token_ids()
    stock = logits(lm, input_ids=ids)
    with apply(lm, METHODS["dense"]()):
        assert (logits(lm, input_ids=ids) - stock).abs().max() < 1e-5
    with apply(lm, AllKeys()):
        assert torch.equal(logits(lm, input_ids=ids), stock), "same path: bit for bit"
    lm, (ids, mask) = tiny(family), left_padded(3)
    stock = logits(lm, input_ids=ids, attention_mask=mask)
    for method in (METHODS["dense"](), AllKeys()):
        with apply(lm, method):
            dense = logits(lm, input_ids=ids, attention_mask=mask)
        assert (dense - stock)[mask.bool()].abs().max() < 1e-5


@pytest.mark.parametrize("family", FAMILIES)
def test_dense_generates_the_same_tokens_also_through_a_static_cache(family):
    lm, (ids, mask) = tiny(family), left_padded(2, 20)
    options = dict(input_ids=ids, attention_mask=mask, max_new_tokens=12, do_sample=False)
    stock = lm.generate(**options)
    for method in (METHODS["dense"](), AllKeys()):
        with apply(lm, method):
            assert torch.equal(lm.generate(**options), stock)
    lm, ids = tiny(family), token_ids(1, 20)
    options = dict(max_new_tokens=8, do_sample=False, cache_implementation="static", disable_compile=True)
    stock = lm.generate(ids, **options)
    with apply(lm, AllKeys()):
        assert torch.equal(lm.generate(ids, **options), stock)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_later_token_changes_nothing_before_it(family, pytestconfig):
    def check(case, lm):
        ids = token_ids()
        changed = ids.clone()
        changed[:, 30:] = token_ids(seed=9)[:, 30:]
        with apply(lm, CASES[case]()):
            a, b = logits(lm, input_ids=ids), logits(lm, input_ids=changed)
        assert (a - b)[:, :30].abs().max() < 1e-5
        assert (a - b)[:, 30:].abs().max() > 1e-3, "the change itself must be seen"

    every_case(family, check, pytestconfig)


@pytest.mark.parametrize("family", BY_KIND)
def test_decoding_with_a_cache_equals_one_pass(family, pytestconfig):
    def check(case, lm):
        ids, mask = left_padded(2, 40)
        with apply(lm, CASES[case]()), torch.no_grad():
            one_pass = logits(lm, input_ids=ids, attention_mask=mask)
            first = lm(input_ids=ids[:, :30], attention_mask=mask[:, :30], use_cache=True)
            steps, past = [first.logits], past_of(first)
            for row in range(30, 40):
                out = lm(ids[:, row : row + 1], attention_mask=mask[:, : row + 1], **as_past(lm, past), use_cache=True)
                steps.append(out.logits)
        assert (torch.cat(steps, 1) - one_pass)[mask.bool()].abs().max() < 1e-4

    every_case(family, check, pytestconfig)


@pytest.mark.parametrize("family", FAMILIES)
def test_left_padding_changes_nothing(family, pytestconfig):
    def check(case, lm):
        ids = token_ids(1, 40)
        padded = torch.cat([torch.zeros(1, 6, dtype=torch.long), ids], 1)
        mask = torch.cat([torch.zeros(1, 6, dtype=torch.long), torch.ones_like(ids)], 1)
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        with apply(lm, CASES[case]()):
            alone = logits(lm, input_ids=ids)
            beside = logits(lm, input_ids=padded, attention_mask=mask, position_ids=positions)[:, 6:]
        assert (alone - beside).abs().max() < 1e-4

    every_case(family, check, pytestconfig)


@pytest.mark.parametrize("family", BY_KIND)
def test_the_model_leaves_as_it_came(family, pytestconfig):
    def check(case, lm):
        ids = token_ids()
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

    every_case(family, check, pytestconfig)
