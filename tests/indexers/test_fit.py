"""Fitting indexers: what they learn from, that they learn it, early stop, the closed form and the nulls."""

import math

import pytest
import torch

from analysis import fit_indexer, indexer_scores
from analysis.errors import BadSetting, NotFitted
from analysis.indexers import INDEXERS
from analysis.indexers.base import Inputs, Tables
from analysis.indexers.fit import Document, Fitting, candidates, reachable, target_of
from analysis.indexers.sizes import Sizes

N, T, D, HEADS, GROUPS, DIM = 6, 48, 12, 4, 2, 6
SMALL = {"index_heads": 4, "index_dim": 8, "unit": 4, "ratio": 4, "steps": 50, "rate": 4e-2, "kv_heads": GROUPS}


@pytest.fixture(scope="module")
def layer():
    """Hidden states [8, 48, 12], the layer's queries and keys of them, and its attention in blocks of 20 queries."""
    draw = torch.Generator().manual_seed(5)
    hidden = torch.randn(N, T, D, generator=draw)
    hidden[..., 0] = 2.0  # as in a model: DSA's weights have no bias of their own
    to_queries, to_keys = torch.randn(D, HEADS * DIM, generator=draw), torch.randn(D, GROUPS * DIM, generator=draw)
    to_queries[:, DIM:] = to_queries[:, :DIM].repeat(1, HEADS - 1)
    to_keys[:, DIM:] = to_keys[:, :DIM]

    def states(text):
        return (text @ to_queries).unflatten(-1, (HEADS, DIM)), (text @ to_keys).unflatten(-1, (GROUPS, DIM))

    def attention(document):
        queries, keys = (x.transpose(0, 1) for x in states(hidden[document]))
        scores = queries @ keys.repeat_interleave(HEADS // GROUPS, 0).mT / 20
        scores = scores.masked_fill(~torch.ones(T, T, dtype=torch.bool).tril(), -torch.inf)
        yield from torch.softmax(scores, -1).split(20, 1)

    return hidden, states, attention


def recall(fitted, layer, share=0.2):
    """Mean attention of a text that trained nothing on as many keys as are a share of the past ones."""
    hidden, _, attention = layer
    scores = fitted.scores(hidden[0])
    scores = scores[None] if scores.ndim == 2 else scores
    scores = scores.repeat_interleave(T // scores.shape[-1], -1)
    weights = torch.cat(list(attention(0)), 1).unflatten(0, (len(scores), -1)).mean(1)
    order = scores[:, 24:].masked_fill(scores[:, 24:].isneginf(), -1e9).argsort(-1, descending=True)
    return float(weights[:, 24:].gather(-1, order)[..., : int(share * T)].sum(-1).mean())


@pytest.mark.parametrize("kind", INDEXERS)
def test_a_fitted_indexer_learns_and_finds_more_than_one_that_learned_from_other_documents(layer, kind):
    hidden, states, attention = layer
    options = {"states": states} if INDEXERS[kind].reads else {}
    fitted = fit_indexer(kind, hidden, attention, **SMALL, **options)
    assert tuple(fitted.state) == INDEXERS[kind].names
    assert fitted.scores(hidden[0]).shape[-2:] == (T, {"qsa": 12, "seer": 12, "moba": 12}.get(kind, T))
    if kind in ("moba", "low_rank"):
        assert not fitted.curve
    else:
        assert min(look.selection for look in fitted.curve) < 0.9 * fitted.curve[0].selection
    if kind in ("dsa", "low_rank"):
        null = fit_indexer(kind, hidden, attention, **SMALL, shuffled=True)
        assert recall(fitted, layer) > 1.5 * recall(null, layer)
    if kind in ("dsa", "glm", "m3", "qsa"):
        tables = fitted.indexer.tables(torch.arange(T))
        scores = indexer_scores(kind, fitted.state, hidden[1], *tables, block=4)
        assert torch.equal(scores, fitted.scores(hidden[1]))


def test_the_low_rank_one_is_least_squares_from_second_moments(layer):
    """Against the normal equations of all pairs, float64, full rank."""
    hidden, _, attention = layer
    fitted = fit_indexer("low_rank", hidden, attention, **SMALL | {"index_dim": D})
    ours = (fitted.state["q.weight"].mT @ fitted.state["k.weight"]).double()
    queries, excess = [], []
    for document, text in enumerate(hidden.double()):
        shares = torch.cat(list(attention(document)), 1).double().mean(0)
        even = torch.ones(T, T, dtype=torch.float64).tril()
        queries.append(text)
        excess.append((shares - even / even.sum(-1, keepdim=True)) @ text)
    text = torch.cat(queries)
    moments = text.mT @ text / len(text)
    ridge = moments + 1e-3 * moments.diagonal().mean() * torch.eye(D, dtype=torch.float64)
    cross = text.mT @ torch.cat(excess) / len(text)
    wanted = torch.linalg.solve(ridge, torch.linalg.solve(ridge, cross.mT).mT)
    assert (ours - wanted).abs().max() < 1e-4 * wanted.abs().max()


def test_what_is_learned_again_is_what_another_start_learns_from_the_same_documents(layer):
    hidden, _, attention = layer

    def taught(seed, shuffled=False, steps=3):
        fitting = Fitting("dsa", D, HEADS, GROUPS, DIM, Sizes(index_heads=2, index_dim=8, steps=steps), seed, shuffled)
        for document, text in enumerate(hidden):
            fitting.begin(Inputs(text))
            for place, block in enumerate(attention(document)):
                fitting.take(torch.arange(20 * place, 20 * place + block.shape[1]), block)
            fitting.end()
        return fitting

    first = taught(0, steps=9)
    for seed, shuffled in ((1, False), (1, True)):
        again, anew = (fitting.fit() for fitting in (first.again(seed, shuffled, steps=3), taught(seed, shuffled)))
        assert again.curve == anew.curve
        assert all(torch.equal(again.state[name], tensor) for name, tensor in anew.state.items())
    assert first.fit().curve[-1].step == 9, "the first one's start is its own"


def test_targets_are_shares_and_the_loss_is_the_divergence_over_what_may_be_chosen():
    """Two heads of one group, five tokens, blocks of two, by hand."""
    attention = torch.zeros(2, 1, 5)
    attention[0, 0] = torch.tensor([0.5, 0.1, 0.2, 0.1, 0.1])
    attention[1, 0] = torch.tensor([0.1, 0.1, 0.0, 0.6, 0.2])
    rows = torch.tensor([4])
    allowed = reachable(rows, 5, Sizes(min_distance=1))
    assert allowed.tolist() == [[True] * 4 + [False]]
    state = INDEXERS["m3"].start(torch.Generator(), 6, 2, 1, 4, index_heads=1, index_dim=4)
    m3 = INDEXERS["m3"](state, unit=2)
    assert torch.allclose(target_of(m3, attention, allowed, rows, 1), torch.tensor([[[0.8, 0.9, 0.0]]]) / 1.7)
    state = INDEXERS["seer"].start(torch.Generator(), 6, 2, 1, 4, index_heads=1, index_dim=4)
    seer = INDEXERS["seer"](state, unit=2)
    assert torch.allclose(target_of(seer, attention, allowed, rows, 1), torch.tensor([[[0.5, 0.6, 0.0]]]) / 1.1)
    assert candidates(seer, torch.ones(1, 5, dtype=torch.bool), rows).tolist() == [[True, True, False]]
    assert candidates(m3, torch.ones(1, 5, dtype=torch.bool), rows).tolist() == [[True, True, True]]
    sizes = Sizes(index_heads=1, index_dim=4, min_distance=1)
    fitting = Fitting("low_rank", 4, 2, 1, 4, sizes)
    fitting.indexer.state = {"q.weight": torch.eye(4), "k.weight": torch.eye(4)}
    hidden = torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0], [2, 1, 0, 0]])
    document = Document(Inputs(hidden), torch.tensor([2]), torch.tensor([[[0.75, 0.25, 0.0]]]))
    share = [math.exp(2) / (math.exp(2) + math.e), math.e / (math.exp(2) + math.e)]
    wanted = 0.75 * math.log(0.75 / share[0]) + 0.25 * math.log(0.25 / share[1])
    assert float(fitting.loss(fitting.lesson(document))) == pytest.approx(wanted, abs=1e-6)


def test_tables_turn_as_those_of_transformers():
    tables = Tables.of(torch.arange(3), 4, 100.0)
    assert tables.cos.shape == (3, 4)
    assert torch.allclose(tables.cos[2], torch.tensor([2.0, 0.2, 2.0, 0.2]).cos())
    turned = tables.turn(torch.tensor([[[1.0, 0, 0, 0, 7]]] * 3))
    assert torch.allclose(turned[2, 0], torch.tensor([math.cos(2), 0, math.sin(2), 0, 7.0]))


def test_equal_bytes_are_the_same_cache_and_one_document_cannot_choose():
    for kind in ("dsa", "qsa", "m3", "seer", "low_rank"):
        sizes = Sizes(index_bytes=32, unit=16, ratio=4).for_kind(kind, 4)
        assert sizes.cached(kind, 4, 32) == 32
    assert Sizes(unit=16).for_kind("moba", 4).cached("moba", 4, 32) == 16
    assert Sizes().for_kind("dsa", 4).multiplied("dsa", 8, 4, 32) == 4 * 17
    with pytest.raises(NotFitted):
        Fitting("dsa", D, HEADS, GROUPS, DIM, Sizes()).fit()


@pytest.mark.parametrize(
    "kind, settings, error",
    [
        ("lsh", {}, BadSetting),
        ("dsa", {"colour": 3}, BadSetting),
        ("seer", {}, BadSetting),
        ("dsa", {"index_bytes": 4, "index_dim": 0}, BadSetting),
    ],
)
def test_what_cannot_be_fitted_is_refused(layer, kind, settings, error):
    with pytest.raises(error):
        fit_indexer(kind, *layer[::2], **SMALL | settings)
