"""Quest: bounds by hand and never below a score, pages by hand, and what a decode step touches."""

import pytest
import torch

from analysis.kernels.gathered import Pages, page_bounds, paged_attention, upper_bounds
from analysis.methods import METHODS
from analysis.seam.attention import apply, ran
from tests.made.passes import watched
from tests.made.tiny import tiny, token_ids

QUEST = METHODS["quest"]


def test_bounds_by_hand_follow_a_text_and_look_at_a_page_once():
    keys = torch.tensor([[1.0, -2.0], [3.0, 0.5], [-1.0, 4.0], [0.0, 5.0]])[None, None]
    low, high = page_bounds(keys, 2)
    assert low[0, 0].tolist() == [[1.0, -2.0], [-1.0, 4.0]] and high[0, 0].tolist() == [[3.0, 0.5], [0.0, 5.0]]
    query = torch.tensor([[2.0, -1.0]])[None, None]
    # page 0: max(2, 6) + max(2, -0.5) = 8; page 1: max(-2, 0) + max(-4, -5) = -4; the best keys have 5.5 and -5
    assert upper_bounds(query, low, high)[0, 0, 0].tolist() == [8.0, -4.0]
    assert [QUEST(budget=b, page=16).pages for b in (1, 48, 63, 64, 128)] == [3, 3, 3, 4, 8]
    keys = torch.randn(1, 2, 40, 4, generator=torch.Generator().manual_seed(0))
    pages_seen = Pages(4)
    assert pages_seen.follow(keys[:, :, :4]) is None, "the newest page is never scored, complete or not"
    for length in range(5, 41):
        unread = keys[:, :, :length].clone()
        unread[:, :, : max(0, (length - 2) // 4 * 4)] = torch.nan  # what was looked at before is not read again
        wanted = page_bounds(keys[:, :, : (length - 1) // 4 * 4], 4)
        assert all(torch.equal(*pair) for pair in zip(pages_seen.follow(unread), wanted, strict=True))
    assert torch.equal(pages_seen.follow(keys[:, :, :9])[0], page_bounds(keys[:, :, :8], 4)[0]), "another text"


@pytest.mark.parametrize("heads, kv_heads", [(4, 4), (4, 2), (3, 1)])
def test_no_key_scores_above_its_pages_bound(heads, kv_heads):
    draw = torch.Generator().manual_seed(heads + kv_heads)
    query = torch.randn(2, heads, 30, 16, generator=draw, dtype=torch.float64)
    key = torch.randn(2, kv_heads, 48, 16, generator=draw, dtype=torch.float64) * 3
    scores = query @ key.repeat_interleave(heads // kv_heads, 1).mT
    assert (upper_bounds(query, *page_bounds(key, 8)) >= scores.unflatten(-1, (6, 8)).amax(-1) - 1e-12).all()
    assert torch.allclose(upper_bounds(query, *page_bounds(key, 1)), scores), "a page of one key is its score"


def test_pages_by_hand():
    """Every head of every layer against a loop in float64 over queries and pages."""
    states = {}

    class Seen(QUEST):
        def encode_tokens(self, layer, query, key, past, module, tables):
            states[layer] = query[0].double(), key[0].double()
            return super().encode_tokens(layer, query, key, past, module, tables)

    layers = watched(tiny("llama"), Seen(budget=12, page=4, dense_layers=1), token_ids(1, 45))
    assert layers[0][0].read.expand(1, 4, 45, 45)[0, 0].sum() == 45 * 46 // 2, "the first layer is dense"
    for attended, mass in layers[1:]:
        query, key = states[attended.layer]
        for head in range(4):
            pages = [key[head // 2][start : start + 4] for start in range(0, 44, 4)]
            for i in range(45):
                q, newest = query[head, i], i // 4
                bounds = [torch.maximum(q * page.amin(0), q * page.amax(0)).sum().item() for page in pages[:newest]]
                best = sorted(range(newest), key=lambda page, bounds=bounds: -bounds[page])[:2]
                keys = [j for j in range(i + 1) if j // 4 in (*best, newest)]
                assert attended.read[0, head, i].nonzero().flatten().tolist() == keys
                wanted = torch.softmax(attended.scores[0, head, i, keys].double(), -1)
                assert torch.allclose(mass[0, head, i, keys].double(), wanted, atol=1e-6)


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
            out = paged_attention(query, spoilt, value, chosen, 4, 0.3)[b, h]
            assert torch.allclose(out.double(), wanted, atol=1e-6)


def test_pages_are_made_anew_when_a_text_begins_anew():
    lm, ids = tiny("llama"), token_ids(2, 30)
    options = dict(max_new_tokens=20, do_sample=False, eos_token_id=None)
    method = QUEST(budget=6, page=2, dense_layers=1)
    with apply(lm, method):
        wanted = lm.generate(ids, **options)
    with apply(lm, method, kernels=True):
        for _ in range(2):
            assert torch.equal(lm.generate(ids, **options), wanted)
        assert (1, "decode", "gathered pages") in {(entry.layer, entry.phase, entry.kernel) for entry in ran(lm)}
