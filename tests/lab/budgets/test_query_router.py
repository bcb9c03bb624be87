"""The query router: its size, what it learns from, correlations by hand, equal keys."""

import numpy as np
import pytest
import torch

from analysis.errors import BadSetting
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.models import load_model
from analysis.seam.attention import apply
from lab.budgets.query_arms import Routed, equal_factor, keys_of, static
from lab.budgets.query_model import (
    QUERIES,
    QueryRouter,
    Samples,
    correlations,
    predict,
    sample_queries,
    table_means,
    train,
)
from tests.made.tiny import LAYERS, tiny, token_ids


def samples(log_k, cell, place, length=16, q=None):
    q = torch.zeros(len(cell), 2) if q is None else q
    return Samples(q, torch.tensor(cell), torch.tensor(place), torch.tensor(log_k, dtype=torch.float32), length)


def test_it_has_the_parameters_of_the_paper_and_uses_the_query_where_it_is_asked():
    assert sum(p.numel() for p in QueryRouter(144, 64, 1024).parameters()) == 33_921
    router, cells, places = QueryRouter(4, 8, 32), torch.tensor([0, 3]), torch.tensor([5, 9])
    a, b = torch.randn(2, 2, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(router(a, cells, places, False), router(b, cells, places, False))
    assert not torch.equal(router(a, cells, places), router(b, cells, places))


def test_samples_are_the_queries_and_ranks_of_dense_attention():
    model, ids, probabilities = load_model(tiny("llama")), token_ids(2, 40).numpy(), {}
    sampled = sample_queries(model, ids, 0.8, seed=3)
    assert len(sampled) == 2 * LAYERS * 4 * QUERIES and sampled.q.shape[1] == 8 and sampled.length == 40

    def watch(block, mass):
        probabilities.setdefault(block.layer, []).append(mass[0].double())

    for row in ids:
        with apply(model, METHODS["dense"](), watch=watch), torch.no_grad():
            model.lm(torch.as_tensor(row)[None], use_cache=False)
    per_window = sampled.log_k.view(2, LAYERS, 4, QUERIES), sampled.place.view(2, LAYERS, 4, QUERIES)
    for window in range(2):
        for layer in range(LAYERS):
            rows = probabilities[layer][window]  # [H, T, T]
            ranks = ((rows.sort(-1, descending=True).values.cumsum(-1) < 0.8 - 1e-6).sum(-1) + 1).log()
            for head in range(4):
                log_k, place = (x[window, layer, head] for x in per_window)
                assert torch.allclose(log_k, ranks[head, place].float(), atol=1e-6)
    assert sampled.cell.view(2, LAYERS, 4, QUERIES)[0, 1, 2].unique().tolist() == [6]
    with pytest.raises(BadSetting, match="read a window or cap their scores"):
        sample_queries(load_model(tiny("gemma2")), ids, 0.8, 0)


def test_correlations_and_a_table_of_means_by_hand():
    """Two heads with means 1 and 5: knowing the head alone is nearly all of the pooled correlation, none within."""
    six = samples([0.0, 1.0, 2.0, 4.0, 5.0, 6.0], [0, 0, 0, 1, 1, 1], [1, 1, 9, 1, 9, 9])
    heads = correlations(torch.tensor([1.0, 1.0, 1.0, 5.0, 5.0, 5.0]), six)
    assert heads["pooled"] == pytest.approx(np.corrcoef([1, 1, 1, 5, 5, 5], [0, 1, 2, 4, 5, 6])[0, 1])
    assert heads["within_head"] is None and heads["within_head_and_position"] is None
    assert heads["error"] == pytest.approx(4 / 6)
    order = correlations(torch.tensor([0.0, 1.0, 2.0, 10.0, 11.0, 12.0]), six)
    assert order["within_head"] == pytest.approx(1.0)
    turned = correlations(torch.tensor([2.0, 1.0, 0.0, 6.0, 5.0, 4.0]), six)
    assert turned["within_head"] == pytest.approx(-1.0) and turned["pooled"] > 0.5
    only = correlations(torch.tensor([0.0, 1.0, 9.0, 9.0, 5.0, 6.0]), six)["within_head_and_position"]
    assert only == pytest.approx(1.0), "places 1 and 1 of head 0, 9 and 9 of head 1"
    fit = samples([1.0, 3.0, 8.0], [0, 0, 1], [0, 15, 3])
    queries = samples([0.0] * 4, [0, 0, 1, 1], [1, 14, 2, 15])
    assert table_means(fit, queries, 1).tolist() == [2, 2, 8, 8]
    assert table_means(fit, queries, 2).tolist() == [1, 3, 8, 4], "the mean of all where nothing was seen"


def test_training_finds_what_is_there():
    q = torch.randn(4000, 4, generator=torch.Generator().manual_seed(0))
    cell = torch.randint(0, 3, (4000,), generator=torch.Generator().manual_seed(1))
    drawn = Samples(q, cell, torch.arange(4000) % 16, cell.float() + 0.5 * q[:, 0], 16)
    with_it, without = (train(drawn, drawn, 3, ask, (1e-2,), 150, 0) for ask in (True, False))
    measured = [
        correlations(predict(training.router, drawn, ask), drawn)
        for training, ask in ((with_it, True), (without, False))
    ]
    assert measured[0]["pooled"] > 0.97 and measured[0]["within_head"] > 0.9
    assert measured[1]["pooled"] < 0.9 and (measured[1]["within_head"] or 0) < 0.2
    assert with_it.curves[0]["steps"] == [100, 150] and with_it.rate == 1e-2


def test_factors_give_equal_keys():
    q = torch.randn(3000, 4, generator=torch.Generator().manual_seed(0))
    uniform = Samples(q, torch.arange(3000) % 4, torch.arange(3000) % 64, torch.zeros(3000), 64)
    router, budgets = QueryRouter(4, 4, 64, middle=2.0), np.array([[3, 9], [20, 30]])
    for cap in (8, 100):
        factor = equal_factor(router, True, uniform, budgets, cap)
        counts = torch.minimum(keys_of(predict(router, uniform), factor, cap), uniform.place + 1)
        wanted = np.mean([min(b, cap, i + 1) for b in (3, 9, 20, 30) for i in range(64)])
        assert counts.double().mean().item() == pytest.approx(wanted, rel=0.05)
    assert keys_of(torch.tensor([-9.0, 1.0, 9.0]), 2.0, 7).tolist() == [1, 5, 7]


def test_a_routed_budget_of_everything_is_dense_attention():
    model, ids = load_model(tiny("llama")), token_ids(1, 40)
    router, budgets = QueryRouter(LAYERS * 4, 8, 40, middle=9.0), np.full((LAYERS, 4), 3)
    logits = []
    for method in (Method(), static(budgets, 40, Routed, router=router), static(budgets, 5, Routed, router=router)):
        with apply(model, method, kernels=True), torch.no_grad():
            logits.append(model.lm(ids, use_cache=False).logits)
    assert (logits[0] - logits[1]).abs().max() < 1e-4 < (logits[0] - logits[2]).abs().max()
    assert method.read == LAYERS * 4 * sum(min(i + 1, 5) for i in range(40))
