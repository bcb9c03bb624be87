"""The ceilings: the best keys of every query by hand, with ties, by fraction, by a share, and against float64; block-
sparse prompts, in which the map of every layer is what is read, dense at the limit."""

import math

import pytest
import torch

from analysis.methods import METHODS
from analysis.methods.block_sparse import BLOCK_RULES, block_map
from tests.made.passes import block, logits, read_keys, seen, watched
from tests.made.tiny import tiny, token_ids

ORACLE = METHODS["oracle_topk"]
SCORES = [
    [1.0, 9.0, 9.0, 9.0],
    [3.0, 1.0, 9.0, 9.0],
    [1.0, 2.0, 3.0, 9.0],
    [4.0, 1.0, 3.0, 2.0],
]


def rows(method, scores, first_row: int = 0) -> list[list[int]]:
    return read_keys(method, block(scores, first_row=first_row))[0].int().tolist()


def test_the_mask_by_hand_ties_and_the_future_takes_no_place():
    assert rows(ORACLE(k=1), SCORES) == [[1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0]]
    assert rows(ORACLE(k=2), SCORES) == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 1, 0]]
    for count in (4, 1 << 20):
        assert list(map(sum, rows(ORACLE(k=count), SCORES))) == [1, 2, 3, 4], "fewer keys than are kept are all read"
    besides = [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 1]]
    assert rows(ORACLE(k=1, keep_window=1), SCORES) == besides
    tied = [[5.0, 2.0, 2.0, 2.0, 1.0, 7.0]]
    assert rows(ORACLE(k=3), tied, 5) == [[1, 1, 1, 1, 0, 1]]
    assert rows(ORACLE(k=2), tied, 5) == [[1, 0, 0, 0, 0, 1]]
    assert rows(ORACLE(k=1), [[0.0] * 4], 3) == [[1, 1, 1, 1]]
    assert rows(ORACLE(fraction=0.5), SCORES) == [[1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 1, 0], [1, 0, 1, 0]]
    scores = torch.randn(200, 200, generator=torch.Generator().manual_seed(0))
    for share in (0.05, 0.1, 0.3, 0.7, 1.0):
        expected = [max(1, math.ceil(round(share * (i + 1), 6))) for i in range(200)]
        assert list(map(sum, rows(ORACLE(fraction=share), scores))) == expected


@pytest.mark.parametrize("k", [1, 5, 17, 40])
def test_against_a_search_in_float64(k):
    scores = torch.randn(3, 40, 40, generator=torch.Generator().manual_seed(k))
    read = read_keys(ORACLE(k=k), block(scores))
    for head, query in [(0, 0), (2, 39), (1, 7), (0, 20)]:
        best = scores[head, query, : query + 1].double().argsort(descending=True)[:k]
        assert set(read[head, query].nonzero().flatten().tolist()) == set(best.tolist())


def test_every_query_head_chooses_its_own_keys_and_no_others_hold_more():
    layers = watched(tiny("llama"), ORACLE(k=4), token_ids(1, 30))
    for attended, mass in layers:
        assert attended.read.shape == attended.scores.shape, "4 query heads, though 2 share their keys"
        assert torch.equal(mass > 0, attended.read) and torch.allclose(mass.sum(-1), torch.ones(()))
        dense = torch.softmax(attended.scores.double().masked_fill(~attended.visible, -math.inf), -1)
        assert torch.allclose((dense * attended.read).sum(-1), dense.topk(4).values.sum(-1), atol=1e-6)
    assert any(not torch.equal(attended.read[:, 0], attended.read[:, 1]) for attended, _ in layers)


@pytest.mark.slow
def test_a_share_is_held_by_the_fewest_keys():
    for attended, mass in watched(tiny("llama"), METHODS["oracle_topp"](p=0.7), token_ids(1, 40)):
        weights = torch.softmax(attended.scores.double().masked_fill(~attended.visible, -torch.inf), -1)[0]
        for head in range(4):
            for i in (0, 7, 39):
                ordered = weights[head, i].sort(descending=True)
                count = int((ordered.values.cumsum(0) < 0.7).sum()) + 1
                best = set(ordered.indices[:count].tolist())
                assert set(attended.read[0, head, i].nonzero().flatten().tolist()) == best
                assert mass[0, head, i].sum() == pytest.approx(1, abs=1e-5)


PREFILL = {
    "skip_softmax": {"scale": 8.0},
    "vertical_slash": {},
    "flex_prefill": {"gamma": 0.3},
    "xattention": {"stride": 4, "threshold": 0.3},
}
GENEROUS = {"skip_softmax": {"scale": 0.0}, "flex_prefill": {"gamma": 1.0}, "xattention": {"threshold": 1.0}}


def test_these_are_all_there_are():
    assert set(PREFILL) == set(BLOCK_RULES) == {name for name, method in METHODS.items() if method.saves == "prefill"}


@pytest.mark.parametrize("name", PREFILL)
def test_a_prompt_reads_the_blocks_of_its_map(name):
    lm, ids = tiny("llama"), token_ids(2, 50)
    prompts, read = seen(lm, ids).prompts, watched(lm, METHODS[name](block=8, **PREFILL[name]), ids)
    # later layers see what earlier ones left out, so their states are other ones
    blocks = block_map(name, prompts[0].query, prompts[0].key, 8, **PREFILL[name])
    pairs = blocks.repeat_interleave(8, 2).repeat_interleave(8, 3)[:, :, :50, :50]
    assert torch.equal(read[0][0].read.expand(2, 4, 50, 50), pairs & torch.ones(50, 50).tril().bool())


@pytest.mark.parametrize("name", GENEROUS)
def test_all_blocks_are_dense_and_few_are_not(name):
    lm, ids = tiny("llama"), token_ids(2, 50)
    wanted = logits(lm, ids)
    assert torch.equal(logits(lm, ids, METHODS[name](block=8, **GENEROUS[name])), wanted)
    if name != "skip_softmax":  # which leaves out what does not matter
        assert (logits(lm, ids, METHODS[name](block=8, **PREFILL[name])) - wanted).abs().max() > 1e-3
