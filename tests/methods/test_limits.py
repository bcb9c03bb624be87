"""What every method has in common: dense where it reads everything, reads that are counted, seeds, what is refused."""

import math

import pytest
import torch

from analysis.errors import BadModel, BadSetting, NotFitted
from analysis.groups.router import FocusRouter
from analysis.methods import METHODS
from analysis.methods.bucket_routing import KINDS, BucketRouting
from analysis.methods.focal import FocalWeights
from analysis.metrics.sparsity import ReadCounter
from analysis.models import load_model
from analysis.seam.attention import apply
from analysis.timing.inference import time_inference
from tests.contract.test_contract import clusters, means, router, warm
from tests.made.passes import logits
from tests.made.routed import made_state
from tests.made.tiny import BY_KIND, LAYERS, WIDTH, tiny, token_ids

EVERY = 10**6  # keys, more than any text has


def routed(**settings) -> BucketRouting:
    return BucketRouting.build(made_state(), **{"visited": 2, "window": 4, "n_sink": 1, **settings})


def policy(count: int) -> list[int]:
    return [count] * 12 + [1 << 20]


def maker(name: str, *state):
    return lambda **settings: METHODS[name](*state, **settings)


csa, focus = METHODS["csa"].build, METHODS["focus"].build
focal, longformer, magicpig = maker("focal"), maker("longformer"), maker("magicpig", means())
oracle, performer, quest = maker("oracle_topk"), maker("performer"), maker("quest")
sparq, streaming, routing = maker("sparq"), maker("streaming_llm"), maker("routing_transformer", clusters())
one_cluster = maker("routing_transformer", clusters(1))

# Methods that read all 48 tokens of a text, and one of the same kind that does not.
DENSE = {
    "bucket_routing": ([routed(router=kind, visited=6) for kind in KINDS], routed(window=2)),
    "csa": ([csa(policy(48)), csa(policy(EVERY)), csa(policy(48), eviction="at the budget")], csa(policy(2))),
    "focal": ([focal(t=1.0), focal(by_layer=(1.0,) * LAYERS)], focal(t=0.5)),
    "focal_learned": ([METHODS["focal_learned"].build(FocalWeights(LAYERS, WIDTH), tau_max=11.4)], None),
    "focus, a window": ([focus(router(), window=48)], focus(router(), window=2)),
    "focus, groups that must meet": ([focus(router(4, 4), window=1), focus(router(5, 3), window=1)], None),
    "longformer": ([longformer(window=48, n_global=0)], longformer(window=10, n_global=0)),
    "magicpig": (
        [magicpig(window=48), magicpig(n_sink=48), magicpig(dense_every=1, window=1)],
        magicpig(bits=12, tables=2, window=2, n_sink=0, dense_every=128),
    ),
    "oracle_topk": ([oracle(k=48), oracle(fraction=1.0), oracle(k=1, keep_window=48)], oracle(k=2)),
    "oracle_topp": ([METHODS["oracle_topp"](p=1.0)], METHODS["oracle_topp"](p=0.3)),
    "quest": (
        [quest(budget=48, page=4, dense_layers=0), quest(budget=1, page=256), quest(budget=1, dense_layers=3)],
        quest(budget=6, page=2, dense_layers=0),
    ),
    "routing_transformer": ([one_cluster(window=1, n_sink=0), routing(window=48)], routing(window=2, n_sink=0)),
    "sparq": ([sparq(channels=8, k=48), sparq(channels=1, k=47)], sparq(channels=1, k=5, local=1)),
    "streaming_llm": ([streaming(n_sink=3, window=45)], streaming(n_sink=3, window=7)),
}


@pytest.mark.slow
@pytest.mark.parametrize("family", BY_KIND)
@pytest.mark.parametrize("name", DENSE)
def test_reading_everything_is_dense_and_less_is_not(name, family):
    lm, ids = tiny(family), token_ids()
    dense, (generous, stingy) = logits(lm, ids), DENSE[name]
    for method in generous:
        assert (logits(lm, ids, method) - dense).abs().max() < (1e-3 if name == "focal_learned" else 1e-5)
    assert stingy is None or (logits(lm, ids, stingy) - dense).abs().max() > 1e-4


# What is fetched of a text of 40 tokens, in shares of its 820 causal pairs (definitions 2.14).
PAGES = sum(min(i + 1, 5 + i % 2) for i in range(40))
READS = {
    "bucket_routing": (routed(visited=6), 1 + 6 / 2 * 40 / 820),  # and C / 2 vectors of the router for each query
    "routing_transformer": (routing(window=40), 1 + 5 / 2 * 40 / 820),
    "performer": (performer(), 16 * 9 / 16 * 40 / 820),  # a matrix of 8 ln 8 features, of fixed size
    "sparq": (sparq(k=6, channels=2, local=2), (2 / 16 * 820 + sum(min(i + 1, 7) for i in range(40))) / 820),
    "quest": (quest(budget=6, page=2, dense_layers=0), PAGES / 820 + 1 / 2),  # two vectors for each page
    "focal": (focal(), 1.0),
}


@pytest.mark.parametrize("name", READS)
def test_what_is_fetched_is_counted(name):
    method, wanted = READS[name]
    # of Quest each query head chooses its own pages: a family where every one has its own keys
    lm, counter = tiny("gpt_neox" if name == "quest" else "llama"), ReadCounter(40)
    with torch.no_grad(), apply(lm, method, watch=counter):
        lm(token_ids(1, 40), use_cache=False)
    assert counter.reads(method).kv_read == pytest.approx(wanted)


@pytest.mark.parametrize("make", [lambda seed: magicpig(bits=4, tables=4, window=2, n_sink=0, seed=seed), performer])
def test_a_seed_decides_everything(make):
    lm, ids = tiny("llama"), token_ids()
    first, again, other_seed = (logits(lm, ids, make(seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other_seed)


@pytest.mark.parametrize(
    ("method", "step"),
    [(routed(), "gathered buckets"), (quest(budget=6, page=2, dense_layers=0), "gathered pages")],
    ids=["bucket_routing", "quest"],
)
def test_the_time_of_a_gathering_step_is_measured(method, step):
    measured = time_inference(load_model(tiny("llama"), tokenizer=None), method, token_ids(1, 40)[0], 4, repeats=1)
    assert measured.sparse.kernel == f"prefill: masked blocks; decode: {step}"
    assert measured.sparse.ms_per_token["median"] > 0 and measured.step_parts["router"] > 0


UNFIT = {  # what a model cannot run with
    "no router": (lambda: METHODS["focus"](), NotFitted, "fit"),
    "a router of another width": (lambda: focus(FocusRouter(LAYERS, 16)), BadSetting, "width 16 and the model has"),
    "more groups than there are": (lambda: focus(router(), top=5), BadSetting, "top is 5 and the router has 4 groups"),
    "no policy": (lambda: METHODS["csa"](), NotFitted, "calibrate"),
    "a policy of another shape": (
        lambda: csa({"layers": 4, "heads": 3, "policy": [2] * 12 + [9]}),
        BadSetting,
        "4 layers of 3 heads and this model has 3 layers of 4",
    ),
    "too few budgets": (lambda: csa([2] * 6), BadSetting, "5 heads and this model has 3 layers of 4"),
    "no buckets": (lambda: METHODS["bucket_routing"](), NotFitted, "no buckets yet"),
    "more buckets than there are": (
        lambda: routed(visited=7),
        BadSetting,
        "and there are 6",
    ),
    "buckets of other layers": (lambda: BucketRouting.build(made_state(layers=2)), BadSetting, "made for 2 layers"),
    "no means": (lambda: METHODS["magicpig"](), NotFitted, "fit-method magicpig"),
    "means of other heads": (
        lambda: METHODS["magicpig"](means(heads=3)),
        BadSetting,
        r"query of shape \[3, 3, 8\] and this model needs \[3, 4, 8\]",
    ),
    "no centroids": (lambda: METHODS["routing_transformer"](), NotFitted, "fit-method"),
    "centroids of another size": (
        lambda: METHODS["routing_transformer"](clusters(dim=4)),
        BadSetting,
        r"kept of shape \[3, 1, 5, 4\] and this model needs \[3, 1, 'any', 8\]",
    ),
    "no temperatures": (lambda: METHODS["focal_learned"](), NotFitted, "fit-method focal_learned"),
    "temperatures of another width": (
        lambda: METHODS["focal_learned"].build(FocalWeights(2, 8)),
        BadSetting,
        "2 layers of width 8",
    ),
    "too few temperatures": (lambda: focal(by_layer=(1.0, 1.0)), BadSetting, "2 temperatures"),
    "no scores of heads": (lambda: METHODS["duo_attention"](), NotFitted, "fit-method duo_attention"),
    "a square beyond a block": (lambda: METHODS["xattention"](stride=5), BadSetting, "must divide the block of 128"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_what_cannot_run_on_a_model_is_refused_before_a_pass(case):
    make, kind, sentence = UNFIT[case]
    with pytest.raises(kind, match=sentence), apply(tiny("llama"), make()):
        pass


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: focal(t=math.nan), "t of Focal Attention is nan"),
        (lambda: focal(by_layer=(1.0, 0.0)), "must lie between"),
        (lambda: METHODS["focal_learned"](tau_min=9.0, tau_max=5.0), "tau_min is 9 and lies above tau_max"),
        (lambda: FocalWeights(0, 4), "at least 1 layer"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(make, sentence):
    with pytest.raises(BadSetting, match=sentence):
        make()


@pytest.mark.parametrize(
    "method",
    [
        focus(router(), membership="literal", reading="soft"),
        METHODS["focal_learned"].build(warm(), mean="literal"),
        routing(membership="literal"),
    ],
    ids=["focus", "focal_learned", "routing_transformer"],
)
def test_what_looks_at_the_whole_text_cannot_decode(method):
    """That it reads the future is tried in tests/contract/test_edges.py."""
    lm = tiny("llama")
    with apply(lm, method), pytest.raises(BadSetting, match="token by token"):
        lm.generate(token_ids(1, 9), max_new_tokens=3, do_sample=False)


def test_a_model_that_caps_or_does_not_rotate_is_refused_where_that_matters():
    with pytest.raises(BadModel, match=r"cannot run gemma2 models: they cap their attention scores \(at 2\)"):
        performer().check(tiny("gemma2"))
    with pytest.raises(BadModel, match="need rotary embeddings, and this model has none"):
        streaming(positions="cache").check(tiny("gpt2"))
