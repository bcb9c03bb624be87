"""CSA as a method: policies, hand-worked masks with ties, equality with dense and with its kernel, eviction by hand."""

import json
import math
from copy import deepcopy

import numpy as np
import pytest
import torch

from analysis.errors import BadSetting, NotFitted
from analysis.kernels.evict import Cache
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.metrics.budgets import reads
from analysis.metrics.sparsity import ReadCounter
from analysis.seam.attention import Block, apply, ran
from tests.made.tiny import FAMILIES, LAYERS, tiny, token_ids

CSA = METHODS["csa"]
HEADS = 4
EVICT = {"eviction": "at the budget"}


def policy(*budgets, cap=1 << 20):
    """A policy for the tiny models: the budgets of the four heads, the same in every layer."""
    return [*budgets, *budgets, *budgets, cap]


def logits(lm, ids):
    with torch.no_grad():
        return lm(ids, use_cache=False).logits


def block(scores, layer=0, first_row=0):
    scores = torch.as_tensor(scores, dtype=torch.float32)[None]  # [1, H, n, Tk]
    rows, columns = torch.arange(scores.shape[2]) + first_row, torch.arange(scores.shape[3])
    visible = (columns <= rows[:, None])[None, None]
    return Block(layer, scores, visible, rows, columns, torch.zeros(1).long())


# --- policies -------------------------------------------------------------------------------------------------------


def test_a_policy_goes_to_json_and_back():
    made = CSA.build({"layers": 2, "heads": 3, "policy": [1, 2, 3, 4, 5, 6, 5]})
    assert made.budgets == (1, 2, 3, 4, 5, 6) and made.cap == 5
    assert made.counts(0) == [1, 2, 3] and made.counts(1) == [4, 5, 5]
    again = CSA.build(json.dumps(made.to_policy()))
    assert (again.budgets, again.cap, again.shape) == (made.budgets, made.cap, (2, 3))
    assert CSA.build(made.to_policy(), cap=2).counts(1) == [2, 2, 2]
    plain = CSA.build(policy(1, 2, 3, 4, cap=3))
    plain.check(tiny("llama"))
    assert plain.to_policy() == {"layers": LAYERS, "heads": HEADS, "policy": policy(1, 2, 3, 4, cap=3)}


@pytest.mark.parametrize(
    "given, said",
    [
        ("{", "no JSON"),
        ("3", "no list of"),
        ([4], "no list of"),
        ([4, -1, 3], "-1 is none"),
        ([4, 0, 3], "whole numbers from 1"),
        ([4, 2.5, 3], "2.5 is none"),
        ([4, True, 3], "True is none"),
        ([4, "8", 3], "8 is none"),
        ({"policy": [1, 2, 3]}, "for how many layers and heads"),
        ({"layers": 2, "heads": 2, "policy": [1, 2, 3]}, "has 3 numbers, and 2 layers of 2 heads need 5"),
        ({"layers": True, "heads": 2, "policy": [1, 2, 3]}, "for how many layers"),
    ],
)
def test_what_is_no_policy_is_refused(given, said):
    with pytest.raises(BadSetting, match=said):
        CSA.build(given)


def test_another_models_policy_is_refused_with_both_shapes():
    lm = tiny("llama")
    other = CSA.build({"layers": 4, "heads": 3, "policy": [2] * 12 + [9]})
    with (
        pytest.raises(BadSetting, match="4 layers of 3 heads and this model has 3 layers of 4 heads"),
        apply(lm, other),
    ):
        pass
    with pytest.raises(BadSetting, match="made for 5 heads and this model has 3 layers of 4"):
        CSA.build([2] * 6).check(lm)
    with pytest.raises(NotFitted, match="calibrate"), apply(lm, CSA()):
        pass


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_the_mask_by_hand_with_ties_and_a_cap():
    rows = [[1.0, 9.0, 9.0, 9.0], [3.0, 1.0, 9.0, 9.0], [2.0, 2.0, 3.0, 9.0], [4.0, 1.0, 3.0, 3.0]]
    method = CSA.build({"layers": 1, "heads": 2, "policy": [1, 9, 2]})
    kept = (method.mask(block([rows, rows])) & block([rows, rows]).visible)[0].int().tolist()
    assert kept[0] == [[1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0]]
    assert kept[1] == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 1, 1]], "the cap is 2; ties all stay"


@pytest.mark.parametrize("family", FAMILIES)
def test_enough_keys_are_dense_attention(family):
    lm, ids = tiny(family), token_ids()
    with apply(lm, Method()):
        wanted = logits(lm, ids)
    for budgets in ([48] * 4, [10**6] * 4):
        with apply(lm, CSA.build(policy(*budgets))):
            assert torch.equal(logits(lm, ids), wanted)
        with apply(lm, CSA.build(policy(*budgets)), kernels=True):
            assert (logits(lm, ids) - wanted).abs().max() < 1e-4
    with apply(lm, CSA.build(policy(2, 2, 2, 2))):
        assert (logits(lm, ids) - wanted).abs().max() > 1e-3


def test_reads_are_what_the_budgets_say_and_grow_with_the_cap():
    lm, ids, shares = tiny("llama"), token_ids(1, 40), []
    for cap in (1, 3, 8, 20, 40):
        method, counter = CSA.build(policy(2, 7, 15, 40, cap=cap)), ReadCounter(40)
        with apply(lm, method, watch=counter):
            logits(lm, ids)
        found, told = counter.reads(method), reads(np.array([[2, 7, 15, 40]] * LAYERS), cap, 40, 2)
        assert told["reads_kv_least"] <= found.reads_kv <= told["reads_kv_most"] and found.kv_read >= told["kv_read"]
        for name in ("attended", "reads_causal", "reads_full"):
            assert getattr(found, name) == pytest.approx(told[name], rel=1e-12)
        shares.append(found.reads_causal)
    assert shares == sorted(shares) and shares[-1] < 1


def test_generation_by_kernel_equals_the_masked_path():
    lm, ids = tiny("qwen3"), token_ids(1, 30)
    options = dict(max_new_tokens=20, do_sample=False, eos_token_id=None)
    method = CSA.build(policy(1, 4, 9, 30))
    with apply(lm, method):
        wanted = lm.generate(ids, **options)
    with apply(lm, method, kernels=True):
        assert torch.equal(lm.generate(ids, **options), wanted)
        assert {(one.phase, one.kernel) for one in ran(lm)} == {
            ("prefill", "top-k of all scores"),
            ("decode", "gathered top-k"),
        }


def test_with_a_gradient_the_masked_path_runs():
    lm, ids = deepcopy(tiny("llama")).requires_grad_(True), token_ids(1, 12)
    with apply(lm, CSA.build(policy(1, 4, 9, 30)), kernels=True):
        lm(ids, use_cache=False).logits.sum().backward()
        assert {one.kernel for one in ran(lm)} == {"masked blocks"}


# --- eviction ---------------------------------------------------------------------------------------------------------


def test_eviction_by_hand():
    """Two keys: the newest is safe, of the two others the one of least attention so far leaves, and never returns."""
    scores = torch.tensor([[0.0, 0, 0, 0], [0, 2, 0, 0], [9, 0, 0, 0], [9, 9, 9, 0]])[None, None]
    visible = torch.ones(4, 4, dtype=torch.bool).tril()[None, None]
    wanted = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1]]
    # at 2: key 0 has 1 + 0.119, key 1 has 0.881: 1 leaves; at 3: key 0 has 2.119 and key 2 nearly nothing: 2 leaves
    cache = Cache(1, 1)
    assert cache.follow(scores, visible, 0, 0, [2])[0, 0].int().tolist() == wanted
    assert cache.count.item() == 2 and cache.places[0, 0, :2].tolist() == [0, 3]
    assert cache.mass[0, 0, 0] == pytest.approx(1 + 0.1192 + 0.9999 + 0.9999, abs=1e-3)
    steps = Cache(1, 1)
    found = [
        steps.follow(scores[:, :, n : n + 1, : n + 1], visible[:, :, n : n + 1, : n + 1], n, 0, [2]) for n in range(4)
    ]
    assert [row.flatten().int().tolist() for row in found] == [w[: n + 1] for n, w in enumerate(wanted)]


def test_a_head_never_holds_more_than_its_budget():
    lm, ids = tiny("llama"), token_ids(2, 40)
    method, seen = CSA.build(policy(1, 2, 5, 40), **EVICT), []
    with apply(lm, method, watch=lambda one, mass: seen.append(one.read)):
        logits(lm, ids)
    for read in seen:
        counts = read.sum(-1).amax((0, 2)).tolist()
        assert counts == [1, 2, 5, 40] and read[..., torch.arange(40), torch.arange(40)].all(), "itself is always read"
        gone = read[:, :, :-1] & ~read[:, :, 1:]
        for later in range(2, 40):
            assert not (gone[:, :, : later - 1].any(2) & read[:, :, later]).any(), "what left is never read again"
    assert method.fetched(3.0, 9.0) == 3.0 and not method.ceiling and CSA.build(policy(1, 2, 3, 4)).ceiling


def test_eviction_with_enough_room_is_dense_and_has_no_kernel():
    lm, ids = tiny("mistral"), token_ids()
    with apply(lm, Method()):
        wanted = logits(lm, ids)
    with apply(lm, CSA.build(policy(48, 48, 48, 48), **EVICT), kernels=True):
        assert torch.equal(logits(lm, ids), wanted)
        assert all("token by token" in one.why or "mask" in one.why for one in ran(lm))


def test_the_page_finds_what_it_needs():
    about = CSA.describe()
    assert (
        [one["name"] for one in about["fields"]] == ["cap", "eviction"]
        and about["ceiling"]
        and about["needs"] == "policy"
    )
    json.dumps(about, allow_nan=False)
    assert math.isfinite(about["fields"][0]["high"])
