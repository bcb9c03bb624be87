"""CSA as a method: policies, hand-worked masks with ties, reads as the budgets say, eviction by hand."""

import json
from copy import deepcopy

import numpy as np
import pytest
import torch

from analysis.errors import BadSetting
from analysis.kernels.evicted import Heads
from analysis.kernels.narrow import BLOCK
from analysis.methods import METHODS
from analysis.metrics.budgets import reads
from analysis.metrics.sparsity import ReadCounter
from analysis.seam.attention import apply, ran
from analysis.seam.cache import cache_bytes, keys_held
from tests.made.passes import block, read_keys, watched
from tests.made.tiny import LAYERS, tiny, token_ids

CSA = METHODS["csa"]
HEADS = 4


def policy(*budgets, cap=1 << 20):
    """A policy for the tiny models: the budgets of the four heads, the same in every layer."""
    return [*budgets, *budgets, *budgets, cap]


def test_a_policy_goes_to_plain_data_and_back():
    plan = CSA.build({"layers": 2, "heads": 3, "policy": [1, 2, 3, 4, 5, 6, 5]})
    assert plan.budgets == (1, 2, 3, 4, 5, 6) and plan.cap == 5
    assert plan.counts(0) == [1, 2, 3] and plan.counts(1) == [4, 5, 5]
    again = CSA.build(json.loads(json.dumps(plan.to_policy())))
    assert (again.budgets, again.cap, again.shape) == (plan.budgets, plan.cap, (2, 3))
    assert CSA.build(plan.to_policy(), cap=2).counts(1) == [2, 2, 2]
    plain = CSA.build(policy(1, 2, 3, 4, cap=3))
    plain.check(tiny("llama"))
    assert plain.to_policy() == {"layers": LAYERS, "heads": HEADS, "policy": policy(1, 2, 3, 4, cap=3)}


@pytest.mark.parametrize(
    ("policy_text", "sentence"),
    [
        ("{", "no JSON"),
        ("3", "no list of"),
        ([4], "no list of"),
        *[([4, value, 3], "whole numbers from 1") for value in (-1, 0, 2.5, True, "8")],
        ({"policy": [1, 2, 3]}, "for how many layers and heads"),
        ({"layers": True, "heads": 2, "policy": [1, 2, 3]}, "for how many layers"),
        ({"layers": 2, "heads": 2, "policy": [1, 2, 3]}, "has 3 numbers, and 2 layers of 2 heads need 5"),
    ],
)
def test_what_is_no_policy_is_refused(policy_text, sentence):
    with pytest.raises(BadSetting, match=sentence):
        CSA.build(policy_text)


def test_the_mask_by_hand_with_ties_and_a_cap_which_runs_with_a_gradient():
    rows = [[1.0, 9.0, 9.0, 9.0], [3.0, 1.0, 9.0, 9.0], [2.0, 2.0, 3.0, 9.0], [4.0, 1.0, 3.0, 3.0]]
    mask = read_keys(CSA.build({"layers": 1, "heads": 2, "policy": [1, 9, 2]}), block([rows, rows])).int().tolist()
    assert mask[0] == [[1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0]]
    assert mask[1] == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 1, 1]], "the cap is 2; ties all stay"
    lm, ids = deepcopy(tiny("llama")).requires_grad_(True), token_ids(1, 12)
    with apply(lm, CSA.build(policy(1, 4, 9, 30)), kernels=True):
        lm(ids, use_cache=False).logits.sum().backward()
        assert {layer_run.kernel for layer_run in ran(lm)} == {"masked blocks"}


def test_reads_are_what_the_budgets_say_and_grow_with_the_cap():
    lm, ids, shares = tiny("llama"), token_ids(1, 40), []
    for cap in (1, 3, 8, 20, 40):
        method, counter = CSA.build(policy(2, 7, 15, 40, cap=cap)), ReadCounter(40)
        with torch.no_grad(), apply(lm, method, watch=counter):
            lm(ids, use_cache=False)
        counted, predicted = counter.reads(method), reads(np.array([[2, 7, 15, 40]] * LAYERS), cap, 40, 2)
        assert predicted["reads_kv_least"] <= counted.reads_kv <= predicted["reads_kv_most"]
        assert counted.kv_read >= predicted["kv_read"]
        for name in ("attended", "reads_causal", "reads_full"):
            assert getattr(counted, name) == pytest.approx(predicted[name], rel=1e-12)
        shares.append(counted.reads_causal)
    assert shares == sorted(shares) and shares[-1] < 1


def test_eviction_by_hand_never_holds_more_than_the_budget():
    """Two keys: the newest is safe, of the two others the one of least attention so far leaves, and never returns."""
    scores = torch.tensor([[0.0, 0, 0, 0], [0, 2, 0, 0], [9, 0, 0, 0], [9, 9, 9, 0]])[None, None]
    visible = torch.ones(4, 4, dtype=torch.bool).tril()[None, None]
    wanted = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1]]
    # at 2: key 0 has 1 + 0.119, key 1 has 0.881: 1 leaves; at 3: key 0 has 2.119 and key 2 nearly nothing: 2 leaves
    cache = Heads(1, 1)
    assert cache.follow(scores, visible, 0, 0, [2])[0, 0].int().tolist() == wanted
    assert cache.count.item() == 2 and cache.places[0, 0, :2].tolist() == [0, 3]
    assert cache.mass[0, 0, 0] == pytest.approx(1 + 0.1192 + 0.9999 + 0.9999, abs=1e-3)
    steps = Heads(1, 1)
    for n in range(4):
        row = (slice(None), slice(None), slice(n, n + 1), slice(n + 1))
        assert steps.follow(scores[row], visible[row], n, 0, [2]).flatten().int().tolist() == wanted[n][: n + 1]
    method = CSA.build(policy(1, 2, 5, 40), eviction="at the budget")
    for layer_block, _ in watched(tiny("llama"), method, token_ids(2, 40)):
        read = layer_block.read
        assert read.sum(-1).amax((0, 2)).tolist() == [1, 2, 5, 40]
        assert read[..., torch.arange(40), torch.arange(40)].all(), "itself is always read"
        gone = read[:, :, :-1] & ~read[:, :, 1:]
        for later in range(2, 40):
            assert not (gone[:, :, : later - 1].any(2) & read[:, :, later]).any(), "what left is never read again"
    assert method.fetched(3.0, 9.0) == 3.0 and not method.ceiling and CSA.build(policy(1, 2, 3, 4)).ceiling


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_cache_that_frees_what_was_dropped_reads_as_the_masked_pass(family):
    """A prompt of 25 tokens, then one, then three at once, then one by one: the logits are those of one masked pass
    over the whole, and of each key-value head no more is held than its query heads may hold together."""
    lm, ids = tiny(family), token_ids(2, 40, seed=4)
    method = CSA.build(policy(2, 3, 4, 5), eviction="at the budget")
    with apply(lm, method), torch.no_grad():
        logits_masked = lm(ids, use_cache=False).logits
    with apply(lm, method, kernels=True), torch.no_grad():
        cache = method.cache(lm)
        assert torch.allclose(lm(ids[:, :25], past_key_values=cache).logits, logits_masked[:, :25], atol=2e-5)
        ends = [25, 26, 29, *range(30, 41)]
        for start, end in zip(ends, ends[1:], strict=False):
            step = lm(ids[:, start:end], past_key_values=cache).logits
            assert torch.allclose(step, logits_masked[:, start:end], atol=2e-5), (start, end)
            kinds = {layer_run.kernel for layer_run in ran(lm)}
        assert kinds == {"evicting cache"}
    shared = [[2, 3, 4, 5]] if lm.config.num_attention_heads == cache.layers[0].held.shape[1] else [[5, 9]]
    for layer in cache.layers:
        assert (layer.held.counts <= torch.tensor(shared).float()).all() and layer.get_seq_length() == 40
        assert layer.held.nbytes == layer.held.counts.sum() * layer.held.size * 4, "nothing else is kept"
    dense = sum(2 * 40 * layer.held.size * layer.held.shape[1] * 4 for layer in cache.layers)
    assert cache_bytes(cache)[0] < dense / 4 and keys_held(cache) < 40 / 4


def test_keys_in_few_bits_are_read_behind_the_last_ones():
    """As a cache would that is packed as it grows: the first block reads everything in full, later tokens lose the more
    the fewer bits there are; a budget takes its keys of the scores that are left."""
    lm, ids = tiny("llama"), token_ids(1, 3 * BLOCK)
    states = {}
    for storage in ("full", "int8", "int4", "int2"):
        with torch.no_grad(), apply(lm, CSA.build(policy(9, 9, 9, 9, cap=9), storage=storage), kernels=True):
            states[storage] = lm(ids).logits[0]
    off = {storage: (got - states["full"]).abs().mean(-1) for storage, got in states.items() if storage != "full"}
    for apart in off.values():
        assert (apart[:BLOCK] < 1e-5).all() and (apart[2 * BLOCK :] > 0).all()
    means = [float(apart[2 * BLOCK :].mean()) for apart in off.values()]
    assert 4 * means[0] < means[1] and 2 * means[1] < means[2]
