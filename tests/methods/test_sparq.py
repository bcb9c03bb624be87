"""SparQ: estimates by hand and in float64, groups of heads that choose together, and what must be dense."""

import math

import pytest
import torch

from analysis.kernels.scoring import Scoring
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.metrics.sparsity import ReadCounter
from analysis.seam.attention import Block, apply
from tests.made.tiny import FAMILIES, left_padded, tiny, token_ids

SPARQ, ORACLE = METHODS["sparq"], METHODS["oracle_topk"]


def block(query, key):
    """A whole text of queries [H, T, D] and keys [G, T, D], scores with a scaling of 1."""
    query, key = torch.as_tensor(query, dtype=torch.float32)[None], torch.as_tensor(key, dtype=torch.float32)[None]
    places = torch.arange(query.shape[2])
    scores = query @ key.repeat_interleave(query.shape[1] // key.shape[1], 1).mT
    rows = torch.cat([query, key], 1).transpose(1, 2)
    visible = (places <= places[:, None])[None, None]
    return Block(0, scores, visible, places, places, torch.zeros(1).long(), rows, rows, scoring=Scoring(1.0))


def random_states(heads=4, kv_heads=2, length=24, dim=8, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return [torch.randn(n, length, dim, generator=draw) for n in (heads, kv_heads)]


def logits(lm, method, ids, **inputs):
    with torch.no_grad(), apply(lm, method):
        return lm(ids, use_cache=False, **inputs).logits


def test_estimates_and_choice_by_hand():
    """The last query is (3, -1, 0, 0): with one channel it sees the first alone, stretched by sqrt(4 / 3)."""
    query = torch.zeros(1, 4, 4)
    query[0, 3] = torch.tensor([3.0, -1, 0, 0])
    key = torch.tensor([[[1.0, 9, 0, 0], [2, 9, 0, 0], [0.5, -9, 0, 0], [0, 0, 0, 0]]])
    one = block(query, key)
    assert SPARQ(channels=1).estimates(one)[0, 0, 3].tolist() == pytest.approx(
        [math.sqrt(4 / 3) * x for x in (3, 6, 1.5, 0)]
    )
    assert SPARQ(channels=2).estimates(one)[0, 0, 3].tolist() == [-6, -3, 10.5, 0]

    def read(**settings):
        return (SPARQ(**settings).mask(one) & one.visible)[0, 0, 3].int().tolist()

    assert read(k=1, channels=1, local=0) == [0, 1, 0, 1], "the best looking one, and itself"
    assert read(k=1, channels=2, local=0) == [0, 0, 1, 1]
    assert read(k=1, channels=1, local=1) == [0, 0, 1, 1], "the token before takes the place"
    assert read(k=2, channels=1, local=1) == [0, 1, 1, 1]
    assert read(k=3, channels=1, local=0) == read(k=9) == [1, 1, 1, 1]


@pytest.mark.parametrize("heads, kv_heads", [(4, 4), (4, 2), (3, 1)])
def test_against_a_loop_in_float64(heads, kv_heads):
    query, key = random_states(heads, kv_heads)
    method, one, share = SPARQ(k=5, channels=3, local=2), block(query, key), heads // kv_heads
    mask, found = method.mask(one) & one.visible, method.estimates(one)
    q, k = query.double(), key.double()
    for g in range(kv_heads):
        mine = range(g * share, (g + 1) * share)
        for i in range(24):
            channels = sum(q[h, i].abs() for h in mine).topk(3).indices
            total = torch.zeros(i + 1, dtype=torch.float64)
            for h in mine:
                stretch = (q[h, i].abs().sum() / q[h, i, channels].abs().sum()).sqrt()
                told = stretch * (k[g, : i + 1, channels] @ q[h, i, channels])
                assert torch.allclose(found[0, h, i, : i + 1].double(), told, atol=1e-5)
                total += told
            best = [j for j in total.argsort(descending=True).tolist() if i - j > 2][: max(0, 6 - min(3, i + 1))]
            wanted = sorted({*best, *range(max(0, i - 2), i + 1)})
            for h in mine:
                assert mask[0, h, i].nonzero().flatten().tolist() == wanted


@pytest.mark.parametrize("family", FAMILIES)
def test_all_channels_and_all_keys_are_dense(family):
    lm, ids = tiny(family), token_ids()
    dense = logits(lm, Method(), ids)
    assert torch.equal(logits(lm, SPARQ(channels=8, k=48), ids), dense)
    assert torch.equal(logits(lm, SPARQ(channels=1, k=47), ids), dense), "with all keys the estimates do not matter"
    assert (logits(lm, SPARQ(channels=1, k=5, local=1), ids) - dense).abs().max() > 1e-3


@pytest.mark.parametrize("family", ["gpt2", "gpt_neox"])
def test_all_channels_choose_the_best_keys(family):
    """Without groups of heads: the oracle's keys, of which the token itself need not be one."""
    lm, ids, seen = tiny(family), token_ids(1, 30), []
    with torch.no_grad(), apply(lm, SPARQ(channels=8, k=6, local=0), watch=lambda b, mass: seen.append(b)):
        lm(ids, use_cache=False)
    for one in seen:
        scores = one.scores.masked_fill(one.distances() == 0, 1e9)
        best = ORACLE(k=7).mask(Block(0, scores, one.visible, one.rows, one.columns, one.first)) & one.visible
        assert torch.equal(best, one.read)


def test_a_text_that_fits_is_dense_and_the_next_token_is_not():
    lm, ids = tiny("llama"), token_ids(2, 12)
    mine, dense = (logits(lm, method, ids) for method in (SPARQ(k=9, channels=2, local=2), Method()))
    assert torch.equal(mine[:, :10], dense[:, :10]) and (mine[:, 10:] - dense[:, 10:]).abs().max() > 1e-5


# --- reallocation -----------------------------------------------------------------------------------------------------


def test_the_rest_goes_to_the_running_mean_by_hand():
    """The last query estimates (2, 0, 1, 0) x ln 2 and reads two: 5 / 8 of what seems there; the rest is a mean."""
    query, key = torch.zeros(1, 4, 2), torch.tensor([[[2.0, 9], [0, 9], [1, -9], [0, 0]]])
    query[0, 3] = torch.tensor([math.log(2), 0])
    one = block(query, key)
    method = SPARQ(k=1, channels=1, local=0)
    one.read = method.mask(one) & one.visible
    assert one.read[0, 0, 3].tolist() == [True, False, False, True]
    probabilities = torch.softmax(one.scores.masked_fill(~one.read, -torch.inf), -1)
    held = (4 + 1) / (4 + 1 + 2 + 1)
    wanted = [held * 4 / 5 + (1 - held) / 4, (1 - held) / 4, (1 - held) / 4, held / 5 + (1 - held) / 4]
    assert method.reweight(one, probabilities)[0, 0, 3].tolist() == pytest.approx(wanted)
    assert SPARQ(reallocate="none").reweight(one, probabilities) is probabilities


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2", "mistral"])
def test_outputs_in_float64(family):
    """alpha times the softmax over what is read, and 1 - alpha times the mean of the values up to the query."""
    lm, ids, seen = tiny(family), token_ids(1, 30), []
    method = SPARQ(k=5, channels=3, local=1)
    with torch.no_grad(), apply(lm, method, watch=lambda b, mass: seen.append((b, mass, method.estimates(b)))):
        lm(ids, use_cache=False)
    for one, mass, told in seen:
        softcap = one.scoring.softcap
        for head in range(4):
            for i in (0, 6, 29):
                visible = one.visible[0, 0, i].nonzero().flatten()
                guess = told[0, head, i, visible].double() * one.scoring.factor
                guess = guess if softcap is None else torch.tanh(guess / softcap) * softcap
                read = one.read[0, head, i, visible]
                held = (torch.softmax(guess, -1) * read).sum()
                exact = one.scores[0, head, i, visible].double().masked_fill(~read, -torch.inf)
                wanted = held * torch.softmax(exact, -1) + (1 - held) / len(visible)
                assert torch.allclose(mass[0, head, i, visible].double(), wanted, atol=1e-5)
                assert mass[0, head, i].sum() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_with_all_channels_the_share_is_that_of_dense_attention(family):
    lm, ids, seen = tiny(family), token_ids(1, 30), []
    with torch.no_grad(), apply(lm, SPARQ(k=5, channels=8, local=0), watch=lambda *pair: seen.append(pair)):
        lm(ids, use_cache=False)
    for one, mass in seen:
        dense = torch.softmax(one.scores.double().masked_fill(~one.visible, -torch.inf), -1)
        left = 1 - (dense * one.read).sum(-1, keepdim=True)
        kept = dense * one.read + left * one.visible / one.visible.sum(-1, keepdim=True)
        assert torch.allclose(mass.double(), kept, atol=1e-5)


def test_reads_are_k_keys_and_some_channels_of_all():
    lm, counter, method = tiny("llama"), ReadCounter(40), SPARQ(k=6, channels=2, local=2)
    with torch.no_grad(), apply(lm, method, watch=counter):
        lm(token_ids(1, 40), use_cache=False)
    reads, pairs = counter.reads(method), sum(min(i + 1, 7) for i in range(40))
    assert reads.attended == pairs / 40
    assert reads.kv_read == pytest.approx((2 / 16 * 820 + pairs) / 820), "r / (2 d) T + k + 1"
    assert [SPARQ().taken(dim) for dim in (8, 128, 2)] == [2, 32, 1] and SPARQ(channels=99).taken(8) == 8


def test_padding_takes_no_place():
    lm, (ids, mask) = tiny("llama"), left_padded(2, 40)
    method = SPARQ(k=5, channels=2, local=1)
    padded = logits(lm, method, ids, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0))
    assert (padded[1:, 5:] - logits(lm, method, ids[1:, 5:])).abs().max() < 1e-4
