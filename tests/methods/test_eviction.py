"""Eviction: every score by hand and against a loop in float64, and exactly as many keys as the budget says."""

import math

import pytest
import torch

import analysis
from analysis.errors import BadSetting
from analysis.kernels.scoring import Scoring
from analysis.methods.budgets import falling_budget
from analysis.methods.evicting import evict
from analysis.methods.eviction import H2O, eviction_scores
from analysis.methods.expected_attention import expected_scores

KINDS = ("snapkv", "tova", "h2o", "keydiff")


def states(batch=2, heads=4, kv_heads=2, length=37, size=8, seed=0):
    draw = torch.Generator().manual_seed(seed)
    shapes = (heads, kv_heads, kv_heads)
    return tuple(torch.randn(batch, n, length, size, generator=draw, dtype=torch.float64) * 2 for n in shapes)


def softmax_row(query, keys):
    """The weights of one query over keys, by the definition."""
    scores = [math.exp(float(query @ key) / math.sqrt(len(query))) for key in keys]
    return [score / sum(scores) for score in scores]


def by_hand(kind, queries, keys, window):
    """[B][G][L] by loops, from the definitions alone."""
    batch, heads, length, _ = queries.shape
    kv_heads, scores = keys.shape[1], torch.empty(batch, keys.shape[1], length, dtype=torch.float64)
    group = heads // kv_heads
    for b in range(batch):
        rows = [
            [softmax_row(queries[b, h, i], keys[b, h // group, : i + 1]) for i in range(length)] for h in range(heads)
        ]
        for g in range(kv_heads):
            group_rows = rows[g * group : (g + 1) * group]
            for j in range(length):
                if kind == "h2o":
                    scores[b, g, j] = sum(head[i][j] for head in group_rows for i in range(j, length)) / group
                elif kind == "tova":
                    scores[b, g, j] = sum(head[-1][j] for head in rows) / heads if j < length - 1 else math.inf
                elif kind == "keydiff":
                    unit = keys[b, g] / keys[b, g].norm(dim=-1, keepdim=True)
                    mean = unit.mean(0)
                    scores[b, g, j] = -float(unit[j] @ mean) / float(mean.norm())
                elif j >= length - window:
                    scores[b, g, j] = math.inf
                else:
                    near = [n for n in range(j - 2, j + 3) if 0 <= n < length - window]
                    last = range(length - window, length)
                    total = sum(head[i][n] for head in group_rows for n in near for i in last)
                    scores[b, g, j] = total / len(last) / 5 / group
    return scores


@pytest.mark.parametrize("kind", KINDS)
def test_scores_by_hand_of_the_prompt_alone_and_of_halves(kind):
    queries, keys, values = states()
    scores = analysis.eviction_scores(kind, queries, keys, values, window=7)
    wanted = by_hand(kind, queries, keys, 7)
    stays = wanted.isinf()
    assert torch.allclose(scores[~stays], wanted[~stays], atol=1e-12)
    assert not stays.any() or (scores[stays] > scores[~stays].max()).all(), "what must stay has the largest score"
    queries, keys, values = states(length=600)
    exact = eviction_scores(kind, queries, keys, values)
    half = eviction_scores(kind, *(x.bfloat16() for x in (queries, keys, values)))
    rounded = eviction_scores(kind, *(x.bfloat16().double() for x in (queries, keys, values)))
    assert half.dtype == torch.float32 and torch.allclose(half.double(), rounded, atol=2e-3, rtol=1e-4)
    assert exact.shape == (2, 2, 600)


def test_an_example_that_can_be_redone_on_paper():
    """Keys e^0, e^ln2, e^ln3 for the last query: weights 1/6, 2/6, 3/6."""
    keys = torch.tensor([[0.0], [math.log(2)], [math.log(3)]])[None, None]
    queries = torch.ones(1, 1, 3, 1)
    tova = eviction_scores("tova", queries, keys, keys)[0, 0].tolist()
    assert tova[:2] == pytest.approx([1 / 6, 2 / 6]) and tova[2] > 1
    # rows: [1], [1/3, 2/3], [1/6, 2/6, 3/6]
    h2o = eviction_scores("h2o", queries, keys, keys)[0, 0].tolist()
    assert h2o == pytest.approx([1 + 1 / 3 + 1 / 6, 2 / 3 + 2 / 6, 3 / 6])
    snapkv = eviction_scores("snapkv", queries, keys, keys, window=1)[0, 0].tolist()
    assert snapkv[:2] == pytest.approx([0.5 / 5, 0.5 / 5]), "five neighbours, three of them beyond the ends"


def test_what_each_rule_keeps():
    keys = torch.tensor([[1.0, 0.0], [5.0, 0.0], [0.0, 2.0], [3.0, 0.0]])[None, None]
    scores = eviction_scores("keydiff", keys, keys, keys)
    assert evict(scores, 0.75)[0, 0].tolist() == [False, False, True, False]
    scores = torch.tensor([[[9.0, 1, 8, 2, 3, 4, 0, 0]]])
    assert H2O(ratio=0.5).kept_keys(0, scores)[0, 0].nonzero().flatten().tolist() == [0, 2, 6, 7]
    counts = [falling_budget(layer, 5, 100, 20, 500) for layer in range(5)]
    assert counts == [20 + 156, 20 + 118, 20 + 80, 20 + 42, 20 + 4], "least 80 / 20, most 160 - 4"
    assert falling_budget(0, 1, 100, 20, 500) == 100 and falling_budget(2, 5, 10, 20, 500) == 10
    steep = [falling_budget(layer, 5, 100, 20, 120) for layer in range(5)]
    assert steep[0] == 120 and sum(steep) == 500, "no layer keeps more than there is"


def test_expected_attention_by_hand_also_under_a_soft_cap():
    """Against weights of many normal queries: the mean of exp(q.k / sqrt(D)) is exp(mean + variance / 2)."""
    queries, keys, values = states(batch=1, heads=2, kv_heads=1, length=9, size=4)
    turn = torch.linalg.qr(torch.randn(4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64))[0]
    scores_given = expected_scores(queries, keys, values, lambda x: x @ turn.T, Scoring(0.5), sinks=2)
    wanted = torch.zeros(9, dtype=torch.float64)
    for head in queries[0]:
        mean, spread = turn @ head[2:].mean(0), turn @ torch.cov(head[2:].T) @ turn.T
        scores = torch.stack([mean @ key / 2 + key @ spread @ key / 8 for key in keys[0, 0]])
        wanted += torch.softmax(scores, 0) / 2
    wanted *= values[0, 0].norm(dim=-1)
    assert torch.allclose(scores_given[0, 0, 2:], wanted[2:]) and scores_given[0, 0, :2].isinf().all()
    # Against the mean of capped exponentials over a fine grid of queries of two dimensions.
    queries, keys, values = states(batch=1, heads=1, kv_heads=1, length=9, size=2)
    scoring = Scoring(3.0, softcap=30.0)
    scores = expected_scores(queries, keys, values, lambda x: x, scoring, sinks=1)[0, 0, 1:]
    without_sink = queries[0, 0, 1:]
    axis = torch.linspace(-9, 9, 601, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis)  # standard normal in both directions
    drawn = without_sink.mean(0) + grid @ torch.linalg.cholesky(torch.cov(without_sink.T)).T
    capped = 30 * torch.tanh(3.0 * drawn @ keys[0, 0].T / 30)
    means = (capped.exp() * (-grid.square().sum(-1, keepdim=True) / 2).exp()).sum(0)
    wanted = means / means.sum() * values[0, 0].norm(dim=-1)
    assert torch.allclose(scores, wanted[1:], rtol=1e-3, atol=0)


def test_what_each_scope_keeps():
    scores = torch.tensor([[[4.0, 1, 3, 2, 0], [0, 9, 9, 9, 1]]])
    stays = analysis.evict(scores, 0.6)
    assert stays.tolist() == [[[True, False, True, False, False], [False, False, True, True, False]]], "later of equals"
    scores = torch.tensor([[[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0], [*[0.0] * 8, 0.01, 0.02]]])
    stays = evict(scores, 0.5, "layer", safe=0.4)
    assert stays[0, 0].sum() == 8 and stays[0, 1].nonzero().flatten().tolist() == [8, 9], "int(0.4 * 5) are safe"
    assert evict(scores, 0.5, "layer", safe=0.0)[0, 1].sum() == 0
    assert torch.equal(evict(scores, 0.5, "layer", safe=1.0), evict(scores, 0.5))
    # By hand: of 2 x 5 keys the layer's best are 9 and 1; 0.4 x 5 + 0.6 of these are 7.4 and 2.6.
    first = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    stays = evict(torch.tensor([[first, [*[0.0] * 8, 0.01, 0.15]]]), 0.5, "mixed", safe=0.4)
    assert stays[0, 0].nonzero().flatten().tolist() == [3, 4, 5, 6, 7, 8, 9]
    assert stays[0, 1].nonzero().flatten().tolist() == [7, 8, 9], "of equal ones the later"
    scores = states()[0][..., 0]
    assert torch.equal(evict(scores, 0.5, "mixed", safe=0.0), evict(scores, 0.5, "layer", safe=0.0))
    assert torch.equal(evict(scores, 0.5, "mixed", safe=1.0), evict(scores, 0.5))


@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.999])
def test_counts_equal_the_budget(ratio):
    scores = eviction_scores("snapkv", *states(length=101), window=8)
    count = int(101 * (1 - ratio))
    assert (evict(scores, ratio).sum(-1) == count).all()
    layer = evict(scores, ratio, "layer")
    assert (layer.sum((1, 2)) == 2 * count).all() and (layer.sum(-1) >= int(0.2 * count)).all()
    assert evict(scores, 0.0).all()


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: eviction_scores("best", *states()), "no eviction score 'best'"),
        (lambda: eviction_scores("h2o", *states(heads=3)), "do not belong together"),
        (lambda: eviction_scores("snapkv", *states(), window=0), "window is 0"),
        (lambda: evict(torch.ones(1, 1, 4), 1.0), "ratio is 1.0"),
        (lambda: evict(torch.ones(1, 1, 4), 0.5, "model"), "scope is 'model'"),
        (lambda: evict(torch.ones(1, 1, 4), 0.5, "layer", 2.0), "safe is 2.0"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(BadSetting, match=message):
        call()
