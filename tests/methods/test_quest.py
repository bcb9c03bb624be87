"""Quest: bounds by hand and never below a score, pages by hand, dense at its limit, and what a decode step touches."""

import pytest
import torch

from analysis.kernels.gathered import Pages, page_bounds, paged_attention, upper_bounds
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.metrics.sparsity import ReadCounter
from analysis.models import load_model
from analysis.seam.attention import apply, ran
from analysis.timing.inference import time_inference
from tests.made.tiny import FAMILIES, LAYERS, left_padded, tiny, token_ids

QUEST = METHODS["quest"]


def logits(lm, ids, **inputs):
    with torch.no_grad():
        return lm(ids, use_cache=False, **inputs).logits


def watched(lm, method, ids, **inputs):
    """[(block, probabilities)] of a pass."""
    seen = []
    with torch.no_grad(), apply(lm, method, watch=lambda block, mass: seen.append((block, mass))):
        lm(ids, use_cache=False, **inputs)
    return seen


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_bounds_by_hand():
    keys = torch.tensor([[1.0, -2.0], [3.0, 0.5], [-1.0, 4.0], [0.0, 5.0]])[None, None]
    low, high = page_bounds(keys, 2)
    assert low[0, 0].tolist() == [[1.0, -2.0], [-1.0, 4.0]] and high[0, 0].tolist() == [[3.0, 0.5], [0.0, 5.0]]
    query = torch.tensor([[2.0, -1.0]])[None, None]
    # page 0: max(2, 6) + max(2, -0.5) = 8; page 1: max(-2, 0) + max(-4, -5) = -4; the best keys have 5.5 and -5
    assert upper_bounds(query, low, high)[0, 0, 0].tolist() == [8.0, -4.0]


@pytest.mark.parametrize("heads, kv_heads", [(4, 4), (4, 2), (3, 1)])
def test_no_key_scores_above_its_pages_bound(heads, kv_heads):
    draw = torch.Generator().manual_seed(heads + kv_heads)
    query = torch.randn(2, heads, 30, 16, generator=draw, dtype=torch.float64)
    key = torch.randn(2, kv_heads, 48, 16, generator=draw, dtype=torch.float64) * 3
    bounds = upper_bounds(query, *page_bounds(key, 8))
    scores = query @ key.repeat_interleave(heads // kv_heads, 1).mT
    largest = scores.unflatten(-1, (6, 8)).amax(-1)
    assert (bounds >= largest - 1e-12).all()
    single = upper_bounds(query, *page_bounds(key, 1))
    assert torch.allclose(single, scores), "a page of one key is bounded by its score"


def test_bounds_follow_a_text_and_look_at_a_page_once():
    keys = torch.randn(1, 2, 40, 4, generator=torch.Generator().manual_seed(0))
    held = Pages(4)
    assert held.follow(keys[:, :, :4]) is None, "the newest page is never scored, complete or not"
    for length in range(5, 41):
        given = keys[:, :, :length].clone()
        given[:, :, : max(0, (length - 2) // 4 * 4)] = torch.nan  # what was looked at before is not read again
        wanted = page_bounds(keys[:, :, : (length - 1) // 4 * 4], 4)
        for found, right in zip(held.follow(given), wanted, strict=True):
            assert torch.equal(found, right)
    assert torch.equal(held.follow(keys[:, :, :9])[0], page_bounds(keys[:, :, :8], 4)[0]), "another text"


# --- what is kept -----------------------------------------------------------------------------------------------------


def by_hand(scores_of, length, size, pages):
    """Keys [T][...] read when `scores_of(i)` are the bounds of query i by page."""
    rows = []
    for i in range(length):
        own = i // size
        best = sorted(range(own), key=lambda page: -scores_of(i)[page])[: pages - 1]
        rows.append([j for j in range(i + 1) if j // size in (*best, own)])
    return rows


def test_pages_by_hand():
    """Every head of every layer against a loop in float64 over queries and pages."""
    lm, ids, states = tiny("llama"), token_ids(1, 45), {}

    class Seen(QUEST):
        def encode_tokens(self, layer, query, key, past, module, tables):
            states[layer] = query[0].double(), key[0].double()
            return super().encode_tokens(layer, query, key, past, module, tables)

    seen = watched(lm, Seen(budget=12, page=4, dense_layers=1), ids)
    assert seen[0][0].read.expand(1, 4, 45, 45)[0, 0].sum() == 45 * 46 // 2, "the first layer is dense"
    for block, mass in seen[1:]:
        query, key = states[block.layer]
        for head in range(4):
            own = key[head // 2]
            low = [own[at : at + 4].amin(0) for at in range(0, 44, 4)]
            high = [own[at : at + 4].amax(0) for at in range(0, 44, 4)]

            def bounds(i, q=query[head], low=low, high=high):
                return [torch.maximum(q[i] * a, q[i] * b).sum().item() for a, b in zip(low, high, strict=True)]

            for i, keys in enumerate(by_hand(bounds, 45, 4, 3)):
                assert block.read[0, head, i].nonzero().flatten().tolist() == keys
                wanted = torch.softmax(block.scores[0, head, i, keys].double(), -1)
                assert torch.allclose(mass[0, head, i, keys].double(), wanted, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_all_pages_are_dense_and_few_are_not(family):
    lm, ids = tiny(family), token_ids()
    with apply(lm, Method()):
        wanted = logits(lm, ids)
    for method in (
        QUEST(budget=48, page=4, dense_layers=0),
        QUEST(budget=1, page=256),
        QUEST(budget=1, dense_layers=3),
    ):
        with apply(lm, method):
            assert torch.equal(logits(lm, ids), wanted)
    with apply(lm, QUEST(budget=6, page=2, dense_layers=0)):
        assert (logits(lm, ids) - wanted).abs().max() > 1e-3


def test_how_many_pages_there_are():
    assert [QUEST(budget=b, page=16).pages for b in (1, 48, 63, 64, 128)] == [3, 3, 3, 4, 8]


def test_pages_begin_at_the_first_real_token():
    lm, (ids, mask) = tiny("llama"), left_padded(2, 40)
    method = QUEST(budget=6, page=2, dense_layers=0)
    places = (mask.cumsum(1) - 1).clamp(min=0)
    padded = watched(lm, method, ids, attention_mask=mask, position_ids=places)
    alone = watched(lm, method, ids[1:, 5:])
    for (a, _), (b, _) in zip(padded, alone, strict=True):
        assert torch.equal(a.read[1, :, 5:, 5:], b.read[0])


def test_what_it_reads_is_counted():
    pairs = sum(min(i + 1, 5 + i % 2) for i in range(40))
    for family in ("gpt_neox", "llama"):  # the second shares each key head between two query heads
        lm, counter, method = tiny(family), ReadCounter(40), QUEST(budget=6, page=2, dense_layers=0)
        with apply(lm, method, watch=counter):
            logits(lm, token_ids(1, 40))
        reads = counter.reads(method)
        assert reads.attended == pairs / 40
        assert reads.kv_read == pytest.approx(reads.reads_kv + 1 / 2), "what is kept of the pages is half of the keys"
        if family == "gpt_neox":
            assert reads.reads_kv == pytest.approx(pairs / 820)
        else:
            assert pairs / 820 < reads.reads_kv < 2 * pairs / 820


# --- decoding ---------------------------------------------------------------------------------------------------------


def test_a_step_touches_its_pages_only():
    draw = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, n, t, 8, generator=draw) for n, t in ((4, 1), (2, 43), (2, 43)))
    chosen = torch.tensor([[[0, 3], [9, 1], [2, 4], [7, 5]], [[1, 2], [3, 4], [5, 6], [8, 9]]])
    for b in range(2):
        for h in range(4):
            read = [t for page in chosen[b, h].tolist() for t in range(4 * page, 4 * page + 4)] + [40, 41, 42]
            weights = torch.softmax(query[b, h].double() @ key[b, h // 2, read].double().T * 0.3, -1)
            wanted = weights @ value[b, h // 2, read].double()
            spoilt = key.clone()
            spoilt[b, h // 2, [t for t in range(43) if t not in read]] = torch.nan
            found = paged_attention(query, spoilt, value, chosen, 4, 0.3)[b, h]
            assert torch.allclose(found.double(), wanted, atol=1e-6)


@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen3"])
def test_generation_by_kernel_equals_the_masked_path(family):
    lm, ids = tiny(family), token_ids(2, 30)
    options = dict(max_new_tokens=20, do_sample=False, eos_token_id=None)
    method = QUEST(budget=6, page=2, dense_layers=1)
    with apply(lm, method):
        wanted = lm.generate(ids, **options)
    with apply(lm, method, kernels=True):
        for _ in range(2):
            assert torch.equal(lm.generate(ids, **options), wanted), "also when a text begins anew"
        found = {(one.layer, one.phase, one.kernel) for one in ran(lm)}
    assert {(0, "decode", "torch dense"), (1, "decode", "gathered pages"), (1, "prefill", "masked blocks")} <= found
    assert len({layer for layer, *_ in found}) == LAYERS


def test_its_time_can_be_measured():
    model = load_model(tiny("llama"), tokenizer=None)
    found = time_inference(model, QUEST(budget=6, page=2, dense_layers=0), token_ids(1, 40)[0], 4, repeats=1)
    assert found.sparse.kernel == "prefill: masked blocks; decode: gathered pages"
    assert found.step_parts["router"] > 0 and found.step_parts["set_a"] > 0
