"""Sinkhorn in the log domain: by hand, its rank-1 identity, masks, what it leaks, and the gates."""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from analysis.errors import AnalysisError, BadSetting
from analysis.groups.gates import gate_logits, group_affinity, straight_through, top_groups
from analysis.groups.sinkhorn import assign, frozen_potential, prefix_sinkhorn, sinkhorn

# exp(S) = [[3, 1], [1, 1]].
BY_HAND = torch.tensor([[math.log(3), 0.0], [0.0, 0.0]])


def random(*shape, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def plain(scores, temperature, iterations):
    """The paper's two steps as printed, in float64."""
    q = torch.exp(scores.double() / temperature)
    for _ in range(iterations):
        q = q / q.sum(-2, keepdim=True)
        q = q / q.sum(-1, keepdim=True)
    return q


def test_two_by_two_by_hand():
    # Columns sum to 4 and 2: [[.75, .5], [.25, .5]]; then rows to 1.25 and .75.
    once = torch.tensor([[0.6, 0.4], [1 / 3, 2 / 3]])
    assert torch.allclose(sinkhorn(BY_HAND, temperature=1.0, iterations=1), once, atol=1e-6)
    # Converged: a doubly stochastic [[p, 1-p], [1-p, p]] keeps the start's cross ratio 3: p / (1-p) = sqrt 3.
    p = math.sqrt(3) / (1 + math.sqrt(3))
    balanced = torch.tensor([[p, 1 - p], [1 - p, p]])
    assert torch.allclose(sinkhorn(BY_HAND, temperature=1.0, iterations=60), balanced, atol=1e-6)
    # Prefixes: the first token alone is 1/2, 1/2; the second's own row is that of both.
    prefix = torch.tensor([[0.5, 0.5], [1 / 3, 2 / 3]])
    assert torch.allclose(prefix_sinkhorn(BY_HAND, temperature=1.0, iterations=1), prefix, atol=1e-6)
    token = torch.tensor([[2.0, 0.0, -1.0, 0.5]])
    assert torch.allclose(sinkhorn(token), torch.full((1, 4), 0.25)), "one token is uniform in the literal form"
    assert float(assign(token, 0.1, torch.zeros(4)).max()) > 0.99, "and not in the causal one"


@settings(max_examples=30)
@given(st.integers(1, 3), st.integers(1, 12), st.integers(1, 6), st.integers(1, 12), st.integers(0, 99))
def test_equals_the_printed_steps_and_rows_sum_to_one(batch, tokens, groups, iterations, seed):
    scores = random(batch, tokens, groups, seed=seed) * 0.4
    assignment = sinkhorn(scores, 0.1, iterations)
    assert assignment.dtype == torch.float32 and assignment.shape == scores.shape
    assert torch.allclose(assignment.double(), plain(scores, 0.1, iterations), atol=2e-6)
    assert torch.allclose(assignment.sum(-1), torch.ones(batch, tokens), atol=1e-6)


def test_groups_are_balanced_and_no_iteration_only_normalises_rows():
    scores = random(400, 8, seed=0) * 0.4 + torch.tensor([60.0] + [0.0] * 7)
    share = sinkhorn(scores.half(), 0.1, 50).mean(0)
    assert torch.allclose(share, torch.full((8,), 1 / 8), atol=2e-3)
    assert sinkhorn(torch.zeros(2, 0, 3)).shape == (2, 0, 3)
    scores = torch.randn(5, 3)
    assert torch.allclose(sinkhorn(scores, 0.5, 0), torch.softmax(scores / 0.5, -1))


@pytest.mark.parametrize("iterations", [1, 10, 50])
def test_rank_one_identity(iterations):
    scores = random(300, 8, seed=1) * 0.35
    potential = frozen_potential(scores, 0.1, iterations)
    assert abs(float(potential.mean())) < 1e-6
    assert (sinkhorn(scores, 0.1, iterations) - assign(scores, 0.1, potential)).abs().max() < 1e-6


def test_the_potential_is_that_of_its_blocks_and_of_logarithms(monkeypatch):
    """Scores of up to 60 at temperature 0.1 spread by 600, where e^-600 squared is 0."""
    scores = random(4, 50, 4, seed=2)
    for wide in (scores, scores * 10):
        logits = (wide / 0.1).double().flatten(0, 1)
        exact = -torch.logsumexp(logits, 0)
        for _ in range(19):
            exact = exact - torch.logsumexp(torch.log_softmax(logits + exact, -1), 0)
        for chunk in (1 << 18, 30):
            monkeypatch.setattr("analysis.groups.sinkhorn.CHUNK", chunk)
            assert torch.allclose(frozen_potential(wide, 0.1, 20).double(), exact - exact.mean(), atol=1e-4)


def test_masked_tokens_come_back_as_zeros_and_leave_a_finite_gradient():
    scores = random(2, 9, 4, seed=3)
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[0, :4] = False
    hostile = scores.clone()
    hostile[0, :4] = float("nan")
    groups = sinkhorn(hostile, mask=mask)
    assert torch.equal(groups[0, :4], torch.zeros(4, 4))
    assert torch.allclose(groups[0, 4:], sinkhorn(scores[0, 4:]), atol=1e-6)
    assert torch.allclose(groups[1], sinkhorn(scores[1]), atol=1e-6)
    assert torch.equal(sinkhorn(scores, mask=mask.long() * 0), torch.zeros(2, 9, 4))
    scores = torch.randn(2, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(4), requires_grad=True)
    mask = torch.tensor([[True] * 5, [False] * 5])
    weights = random(2, 5, 3, seed=5)
    (sinkhorn(scores, 0.5, 4, mask) * weights).sum().backward()
    assert bool(scores.grad.isfinite().all()) and float(scores.grad[1].abs().max()) == 0
    step = torch.zeros_like(scores)
    step[0, 2, 1] = 1e-4
    with torch.no_grad():
        both = [(plain((scores + s)[0], 0.5, 4) * weights[0]).sum() for s in (step, -step)]
    assert float(scores.grad[0, 2, 1]) == pytest.approx(float(both[0] - both[1]) / 2e-4, rel=1e-4)


def test_the_literal_form_leaks_the_future_and_the_causal_one_never():
    scores = random(64, 8, seed=6) * 0.35
    changed = scores.clone()
    changed[40:] += torch.tensor([1.0, -1.0] * 4)
    early = [sinkhorn(s)[:40].argmax(-1) for s in (scores, changed)]
    assert 0.02 < float((early[0] != early[1]).float().mean()) < 1
    potential = frozen_potential(scores)
    assert torch.equal(assign(scores, 0.1, potential)[:40], assign(changed, 0.1, potential)[:40])


@pytest.mark.parametrize(("spread", "entries"), [(0.35, 1), (0.35, 300), (0.35, 1 << 22), (20.0, 1 << 22)])
def test_every_prefix_is_balanced_by_itself_and_reads_no_future(spread, entries, monkeypatch):
    monkeypatch.setattr("analysis.groups.sinkhorn.ENTRIES", entries)
    scores = random(2, 33, 4, seed=7) * spread
    groups = prefix_sinkhorn(scores)
    for end in range(33):
        assert torch.allclose(groups[:, end], sinkhorn(scores[:, : end + 1])[:, end], atol=1e-6)
    changed = scores.clone()
    changed[:, 20:] += torch.tensor([1.0, -1.0, 1.0, -1.0])
    assert torch.allclose(prefix_sinkhorn(changed)[:, :20], groups[:, :20], atol=1e-6)
    mask = torch.arange(33) >= torch.tensor([[5], [0]])
    padded = prefix_sinkhorn(scores, mask=mask)
    assert torch.equal(padded[0, :5], torch.zeros(5, 4)) and torch.allclose(padded[1], groups[1], atol=1e-6)
    assert torch.allclose(padded[0, 5:], prefix_sinkhorn(scores[0, 5:]), atol=1e-6)
    assert prefix_sinkhorn(scores[:, :0]).shape == (2, 0, 4)
    assert torch.equal(prefix_sinkhorn(scores, iterations=0), sinkhorn(scores, iterations=0))


def test_a_prefix_is_balanced_however_far_apart_its_scores_are_and_passes_gradients_on():
    scores = random(9, 4, seed=7)
    groups = prefix_sinkhorn(scores * 1e4)
    assert torch.isfinite(groups).all() and torch.allclose(groups.sum(-1), torch.ones(9))
    gradients = []
    for balance in (prefix_sinkhorn, sinkhorn):
        mild = (scores * 0.1).requires_grad_()
        balance(mild, mask=torch.arange(9) > 1)[-1, 0].backward()
        gradients.append(mild.grad)
    assert torch.allclose(*gradients, atol=1e-6) and gradients[0].abs().max() > 1e-3


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda s: sinkhorn(s, temperature=0), "temperature"),
        (lambda s: sinkhorn(s, temperature=float("nan")), "temperature"),
        (lambda s: sinkhorn(s, iterations=-1), "iterations"),
        (lambda s: sinkhorn(s, iterations=2.5), "iterations"),
        (lambda s: sinkhorn(s[:, :0]), "at least 1 group"),
        (lambda s: sinkhorn(s * float("inf")), "not finite"),
        (lambda s: sinkhorn(s, mask=torch.ones(7)), "mask"),
        (lambda s: frozen_potential(s[:0]), "calibration token"),
    ],
)
def test_refusals(call, word):
    with pytest.raises(AnalysisError, match=word):
        call(torch.ones(6, 3))


@pytest.mark.parametrize(
    ("form", "affinity", "gated"),
    [
        ("literal", 0.0, -1.0),  # half, never 0
        ("literal", 1.0, -2.0),
        ("centred", 0.25, -1.0),
        ("centred", 0.0, -2 / (1 + math.exp(5))),
        ("log", 0.25, -2 + math.log(0.5)),
        ("log", 0.0, -2 - math.log(1 + math.exp(5))),
    ],
)
def test_gates_by_hand(form, affinity, gated):
    score, affinity = torch.tensor(-2.0), torch.tensor(affinity)
    assert float(gate_logits(score, affinity, form, 20.0, 0.25)) == pytest.approx(gated)
    assert float(gate_logits(score, torch.tensor(0.0), "log", 1e4, 0.25)) < -2000, "the hard mask in the limit"


def test_affinity_membership_and_straight_through():
    g = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]], requires_grad=True)
    assert group_affinity(g, g)[0, 1].item() == pytest.approx(0.05 + 0.06 + 0.14)
    assert top_groups(g, 2).tolist() == [[True, True, False], [False, True, True]]
    hard = straight_through(g, 1)
    assert hard.detach().tolist() == [[1, 0, 0], [0, 0, 1]]
    (hard * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert g.grad.tolist() == [[1, 2, 3], [1, 2, 3]]
    with pytest.raises(BadSetting, match="1 to 3"):
        top_groups(g, 4)
