"""SparQ: estimates by hand and in float64, groups of heads that choose together, and where the rest goes."""

import math

import pytest
import torch

from analysis.methods import METHODS
from tests.made.passes import block, normal_states, read_keys, stacked_block, watched
from tests.made.tiny import BY_KIND, tiny, token_ids

SPARQ, ORACLE = METHODS["sparq"], METHODS["oracle_topk"]


def test_estimates_and_choice_by_hand():
    """The last query is (3, -1, 0, 0): with one channel it sees the first alone, stretched by sqrt(4 / 3)."""
    query = torch.zeros(1, 4, 4)
    query[0, 3] = torch.tensor([3.0, -1, 0, 0])
    tokens = stacked_block(query, torch.tensor([[[1.0, 9, 0, 0], [2, 9, 0, 0], [0.5, -9, 0, 0], [0, 0, 0, 0]]]))
    stretched = [math.sqrt(4 / 3) * x for x in (3, 6, 1.5, 0)]
    assert SPARQ(channels=1).estimates(tokens)[0, 0, 3].tolist() == pytest.approx(stretched)
    assert SPARQ(channels=2).estimates(tokens)[0, 0, 3].tolist() == [-6, -3, 10.5, 0]

    def read(**settings):
        return read_keys(SPARQ(**settings), tokens)[0, 3].int().tolist()

    assert read(k=1, channels=1, local=0) == [0, 1, 0, 1], "the best looking one, and itself"
    assert read(k=1, channels=2, local=0) == [0, 0, 1, 1]
    assert read(k=1, channels=1, local=1) == [0, 0, 1, 1], "the token before takes the place"
    assert read(k=2, channels=1, local=1) == [0, 1, 1, 1]
    assert read(k=3, channels=1, local=0) == read(k=9) == [1, 1, 1, 1]
    assert [SPARQ().taken(dim) for dim in (8, 128, 2)] == [2, 32, 1] and SPARQ(channels=99).taken(8) == 8


@pytest.mark.parametrize("heads, kv_heads", [(4, 4), (4, 2), (3, 1)])
def test_against_a_loop_in_float64(heads, kv_heads):
    query, key, _ = normal_states(heads, kv_heads, 24)
    method, tokens, group = SPARQ(k=5, channels=3, local=2), stacked_block(query, key), heads // kv_heads
    mask, estimated = read_keys(method, tokens), method.estimates(tokens)
    q, k = query.double(), key.double()
    for g in range(kv_heads):
        sharing = range(g * group, (g + 1) * group)
        for i in range(24):
            channels = sum(q[h, i].abs() for h in sharing).topk(3).indices
            total = torch.zeros(i + 1, dtype=torch.float64)
            for h in sharing:
                stretch = (q[h, i].abs().sum() / q[h, i, channels].abs().sum()).sqrt()
                wanted = stretch * (k[g, : i + 1, channels] @ q[h, i, channels])
                assert torch.allclose(estimated[0, h, i, : i + 1].double(), wanted, atol=1e-5)
                total += wanted
            best = [j for j in total.argsort(descending=True).tolist() if i - j > 2][: max(0, 6 - min(3, i + 1))]
            keys = sorted({*best, *range(max(0, i - 2), i + 1)})
            assert all(mask[h, i].nonzero().flatten().tolist() == keys for h in sharing)


@pytest.mark.parametrize("family", ["gpt2", "gpt_neox"])
def test_all_channels_choose_the_best_keys(family):
    """Without groups of heads: the oracle's keys, of which the token itself need not be one."""
    for attended, _ in watched(tiny(family), SPARQ(channels=8, k=6, local=0), token_ids(1, 30)):
        best = read_keys(ORACLE(k=7), block(attended.scores[0].masked_fill(attended.distances() == 0, 1e9)))
        assert torch.equal(best, attended.read[0])


def test_the_rest_goes_to_the_running_mean_by_hand():
    """The last query estimates (2, 0, 1, 0) x ln 2 and reads two: 5 / 8 of what seems there; the rest is a mean."""
    query, key = torch.zeros(1, 4, 2), torch.tensor([[[2.0, 9], [0, 9], [1, -9], [0, 0]]])
    query[0, 3] = torch.tensor([math.log(2), 0])
    tokens, method = stacked_block(query, key), SPARQ(k=1, channels=1, local=0)
    tokens.read = method.mask(tokens) & tokens.visible
    assert tokens.read[0, 0, 3].tolist() == [True, False, False, True]
    probabilities = torch.softmax(tokens.scores.masked_fill(~tokens.read, -torch.inf), -1)
    alpha = (4 + 1) / (4 + 1 + 2 + 1)
    wanted = [alpha * 4 / 5 + (1 - alpha) / 4, (1 - alpha) / 4, (1 - alpha) / 4, alpha / 5 + (1 - alpha) / 4]
    assert method.reweight(tokens, probabilities)[0, 0, 3].tolist() == pytest.approx(wanted)
    assert SPARQ(reallocate="none").reweight(tokens, probabilities) is probabilities


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2", "mistral"])
def test_outputs_in_float64(family):
    """alpha times the softmax over what is read, and 1 - alpha times the mean of the values up to the query."""
    method = SPARQ(k=5, channels=3, local=1)
    for attended, mass in watched(tiny(family), method, token_ids(1, 30)):
        estimated, softcap = method.estimates(attended).double() * attended.scoring.factor, attended.scoring.softcap
        estimated = estimated if softcap is None else torch.tanh(estimated / softcap) * softcap
        for head in range(4):
            for i in (0, 6, 29):
                visible = attended.visible[0, 0, i].nonzero().flatten()
                read = attended.read[0, head, i, visible]
                alpha = (torch.softmax(estimated[0, head, i, visible], -1) * read).sum()
                exact = attended.scores[0, head, i, visible].double().masked_fill(~read, -torch.inf)
                wanted = alpha * torch.softmax(exact, -1) + (1 - alpha) / len(visible)
                assert torch.allclose(mass[0, head, i, visible].double(), wanted, atol=1e-5)
                assert mass[0, head, i].sum() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("family", BY_KIND)
def test_with_all_channels_the_share_is_that_of_dense_attention(family):
    for attended, mass in watched(tiny(family), SPARQ(k=5, channels=8, local=0), token_ids(1, 30)):
        dense = torch.softmax(attended.scores.double().masked_fill(~attended.visible, -torch.inf), -1)
        left = 1 - (dense * attended.read).sum(-1, keepdim=True)
        wanted = dense * attended.read + left * attended.visible / attended.visible.sum(-1, keepdim=True)
        assert torch.allclose(mass.double(), wanted, atol=1e-5)
