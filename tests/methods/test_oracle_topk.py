"""The best keys of every query: by hand, with ties, by fraction, and against a search in float64."""

import math

import pytest
import torch

from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.seam.attention import Block, apply
from tests.made.tiny import tiny, token_ids

ORACLE = METHODS["oracle_topk"]


def kept(method, scores, first_row=0):
    """bool [B, H, n, Tk] of scores [.., n, Tk] whose queries begin at place `first_row`, causality applied."""
    scores = torch.as_tensor(scores, dtype=torch.float32)
    scores = scores.reshape((1,) * (4 - scores.dim()) + tuple(scores.shape))
    rows, columns = torch.arange(scores.shape[2]) + first_row, torch.arange(scores.shape[3])
    visible = (columns <= rows[:, None])[None, None]
    return method.mask(Block(0, scores, visible, rows, columns, torch.zeros(1).long())) & visible


def ints(mask):
    return mask[0, 0].int().tolist()


SCORES = [
    [1.0, 9.0, 9.0, 9.0],
    [3.0, 1.0, 9.0, 9.0],
    [1.0, 2.0, 3.0, 9.0],
    [4.0, 1.0, 3.0, 2.0],
]


def test_the_mask_by_hand_and_the_future_takes_no_place():
    assert ints(kept(ORACLE(k=1), SCORES)) == [[1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0]]
    assert ints(kept(ORACLE(k=2), SCORES)) == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 1, 0]]


def test_all_that_tie_with_the_last_one_stay():
    tied = [[5.0, 2.0, 2.0, 2.0, 1.0, 7.0]]
    assert ints(kept(ORACLE(k=3), tied, 5)) == [[1, 1, 1, 1, 0, 1]]
    assert ints(kept(ORACLE(k=2), tied, 5)) == [[1, 0, 0, 0, 0, 1]]
    assert ints(kept(ORACLE(k=1), [[0.0] * 4], 3)) == [[1, 1, 1, 1]]


def test_fewer_keys_than_are_kept_are_all_read():
    assert kept(ORACLE(k=4), SCORES).sum(-1)[0, 0].tolist() == [1, 2, 3, 4]
    assert kept(ORACLE(k=1 << 20), SCORES).sum(-1)[0, 0].tolist() == [1, 2, 3, 4]


def test_a_fraction_is_of_what_is_visible_rounded_up_and_at_least_one():
    assert ints(kept(ORACLE(fraction=0.5), SCORES)) == [[1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 1, 0], [1, 0, 1, 0]]
    many = torch.randn(1, 1, 200, 200, generator=torch.Generator().manual_seed(0))
    for share in (0.05, 0.1, 0.3, 0.7, 1.0):
        expected = [max(1, math.ceil(round(share * (i + 1), 6))) for i in range(200)]
        assert kept(ORACLE(fraction=share), many).sum(-1)[0, 0].tolist() == expected


def test_the_last_tokens_can_be_kept_besides():
    assert ints(kept(ORACLE(k=1, keep_window=1), SCORES)) == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 1]]


@pytest.mark.parametrize("k", [1, 5, 17, 40])
def test_against_a_search_in_float64(k):
    scores = torch.randn(2, 3, 40, 40, generator=torch.Generator().manual_seed(k))
    mask = kept(ORACLE(k=k), scores)
    for text, head, query in [(0, 0, 0), (1, 2, 39), (0, 1, 7), (1, 0, 20)]:
        seen = scores[text, head, query, : query + 1].double()
        best = seen.argsort(descending=True)[:k]
        assert set(mask[text, head, query].nonzero().flatten().tolist()) == set(best.tolist())


def test_every_query_head_chooses_its_own_keys_and_no_others_hold_more():
    lm, ids, seen = tiny("llama"), token_ids(1, 30), []
    with torch.no_grad(), apply(lm, ORACLE(k=4), watch=lambda block, mass: seen.append((block, mass))):
        lm(ids, use_cache=False)
    for block, mass in seen:
        assert block.read.shape == block.scores.shape, "4 query heads, though 2 share their keys"
        assert torch.equal(mass > 0, block.read) and torch.allclose(mass.sum(-1), torch.ones(()))
        dense = torch.softmax(block.scores.double().masked_fill(~block.visible, -math.inf), -1)
        held = (dense * block.read).sum(-1)
        assert torch.allclose(held, dense.topk(4).values.sum(-1), atol=1e-6)
    assert any(not torch.equal(block.read[:, 0], block.read[:, 1]) for block, _ in seen)


@pytest.mark.parametrize("method", [ORACLE(k=30), ORACLE(fraction=1.0), ORACLE(k=1, keep_window=30)])
def test_keeping_everything_is_dense(method):
    lm, ids, found = tiny("qwen3"), token_ids(1, 30), []
    for one in (method, Method(), ORACLE(k=2)):
        with torch.no_grad(), apply(lm, one):
            found.append(lm(ids, use_cache=False).logits)
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])
