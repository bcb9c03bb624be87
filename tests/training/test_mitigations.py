"""What table 8 tries, by hand."""

import math

import pytest
import torch

from analysis.groups.dominance import rebalance
from analysis.groups.router import FocusRouter
from analysis.groups.sinkhorn import sinkhorn
from analysis.training.mitigations import Learning, balance_loss, entropy_loss, follow, recluster
from analysis.training.settings import RouterTraining

EVEN = torch.tensor([[0.75, 0.25], [0.25, 0.75]])


def test_the_balance_and_the_entropy_loss_by_hand():
    assert balance_loss(EVEN) == 1.0, "2 x (1/2 x 1/2 + 1/2 x 1/2)"
    assert balance_loss(torch.tensor([[0.9, 0.1], [0.7, 0.3]])) == pytest.approx(1.6), "2 x (1 x 0.8 + 0 x 0.2)"
    assert balance_loss(torch.tensor([[1.0, 0.0], [1.0, 0.0]])) == 2.0, "K at the worst"
    groups = EVEN.clone().requires_grad_()
    balance_loss(groups[None]).backward()
    assert torch.equal(groups.grad, torch.full((2, 2), 0.5)), "through the mean assignment: K f_k / N"
    assert entropy_loss(torch.tensor([[1.0, 0.0], [0.5, 0.5]])) == pytest.approx(math.log(2) / 2)
    groups = torch.tensor([[0.6, 0.4]], requires_grad=True)
    entropy_loss(groups).backward()
    assert groups.grad.tolist()[0] == pytest.approx([-1 - math.log(0.6), -1 - math.log(0.4)])
    scores = torch.tensor([[200.0, 0.0]], requires_grad=True)
    entropy_loss(scores.softmax(-1)).backward()
    assert scores.grad.isfinite().all(), "a token that is sure of its group has a finite gradient"


def test_centroids_follow_their_tokens_and_are_clustered_anew():
    centroids = torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 3.0]])
    vectors = torch.tensor([[0.0, 5.0], [0.0, 7.0], [-4.0, 0.0]])
    groups = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    moved = follow(centroids, vectors, groups, 0.75)
    assert moved.tolist() == [[1.5, 0.5], [-0.25, 0.75], [3.0, 3.0]], "a group without tokens stays"
    router = FocusRouter(1, 2, groups=2, d_s=2)
    router.projection.data[0] = torch.eye(2)
    router.centroids.data[0] = torch.tensor([[3.0, 0.0], [5.0, 0.0]])
    recluster(router, [torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, 9.0]])], seed=0)
    rows = sorted([round(value, 5) for value in row] for row in router.centroids[0].tolist())
    assert rows == [[0.0, 4.0], [4.0, 0.0]], "unit directions times the mean length"
    method, hidden, groups = learning(ema=0.5)
    before = method.router.centroids.detach().clone()
    method.move_centroids()
    for layer in (0, 1):
        vectors = method.router.project(layer, hidden)[0].detach()
        assert torch.allclose(method.router.centroids[layer], follow(before[layer], vectors, groups[layer][0], 0.5))


def learning(**settings) -> tuple[Learning, torch.Tensor, list[torch.Tensor]]:
    """Focus in training with a router of two groups, what enters it, and the groups of two layers."""
    plan = RouterTraining(groups=2, d_s=4, length=8, tokens_per_step=8, balance="softmax", **settings)
    router = FocusRouter(2, 4, plan.router_settings())
    hidden = torch.randn(1, 8, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    method = Learning.build(router, reading="soft", membership="literal", plan=plan)
    real = torch.ones(1, 8, dtype=torch.bool)
    return method, hidden, [method.token_features(layer, hidden, real) for layer in (0, 1)]


def test_stop_gradient_cuts_the_inputs_alone_and_the_penalty_is_the_mean_over_layers():
    for detach in (False, True):
        method, hidden, groups = learning(detach=detach)
        groups[0][..., 0].sum().backward()
        assert (hidden.grad is None) == detach and method.router.projection.grad[0].abs().sum() > 0
    assert learning()[0].penalty() == 0.0
    method, _, groups = learning(balance_weight=0.25, entropy_weight=2.0)
    wanted = [0.25 * balance_loss(of_layer) + 2 * entropy_loss(of_layer) for of_layer in groups]
    assert method.penalty().item() == pytest.approx(sum(loss.item() for loss in wanted) / 2)


def test_sinkhorn_on_stored_scores():
    scores = torch.randn(3, 40, 4, generator=torch.Generator().manual_seed(1)) + torch.tensor([1.0, 0, 0, 0])
    plain, balanced = rebalance(scores, 0.5, 0), rebalance(scores, 0.5, 200)
    assert plain["share"].min() > 0.4 and balanced["mass"].tolist() == pytest.approx([0.25] * 3, abs=1e-3)
    groups, layers = sinkhorn(scores, 0.5, 3), rebalance(scores, 0.5, 3)
    assert layers["confidence"].tolist() == pytest.approx(groups.max(-1).values.mean(1).tolist())
    assert layers["share"].tolist() == pytest.approx([float(torch.bincount(g.argmax(-1)).max() / 40) for g in groups])
