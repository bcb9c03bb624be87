"""Bucket routers: the algebra of the gauge, least squares, what every router must give, and what it refuses."""

import math

import pytest
import torch

from analysis import bucket_recall, fit_router, gauge
from analysis.errors import BadSetting, NotFitted
from analysis.metrics.routing import captured
from analysis.routers import ROUTERS
from analysis.routers.buckets import make_buckets, members, nearest
from analysis.routers.controls import newest_key
from analysis.routers.linear import GWRLinear, GWRLinearIntercept
from analysis.routers.mlp import LEARNED, RATES, _gradients
from analysis.routers.moments import Moments

C, D = 12, 8


@pytest.fixture(scope="module")
def head():
    """Queries [600, 8], keys [500, 8] of other directions, masses [600, 12] and unit centroids [12, 8] of one head."""
    draw = torch.Generator().manual_seed(3)
    queries = torch.randn(600, D, generator=draw) @ torch.randn(D, D, generator=draw) + 0.5
    keys = torch.randn(500, D, generator=draw) @ torch.randn(D, D, generator=draw)
    centroids = make_buckets(keys[None], C)[0]
    attention = torch.softmax(queries @ keys.T / 4, -1)
    mass = attention @ members(nearest(keys[None], centroids[None]), C)[0]
    return queries, keys, mass / mass.sum(-1, keepdim=True), centroids


@pytest.mark.parametrize("eps", [1e-4, 0.3])
def test_the_gauge_matches_second_moments_and_keeps_products(head, eps):
    queries, keys = head[0].double(), head[1].double()
    S, R = gauge(queries, keys, eps)
    of_queries = queries.T @ queries / len(queries) + eps * torch.eye(D, dtype=torch.float64)
    of_keys = keys.T @ keys / len(keys) + eps * torch.eye(D, dtype=torch.float64)
    assert S.dtype == R.dtype == torch.float64 and torch.linalg.eigvalsh(S).min() > 0
    assert (S @ of_queries @ S - of_keys).abs().max() < 1e-8
    assert (R @ R - S).abs().max() < 1e-8
    back = torch.linalg.inv(R).T
    assert ((queries @ R) @ (keys @ back).T - queries @ keys.T).abs().max() < 1e-8
    assert (R.T @ of_queries @ R - back.T @ of_keys @ back).abs().max() < 1e-8, "equal second moments"
    of_equal_moments = gauge(queries, queries)
    assert all((matrix - torch.eye(D)).abs().max() < 1e-8 for matrix in of_equal_moments), "equal moments need no turn"
    pieces = Moments()
    for part in queries.split(77):
        pieces.add(part)
    assert torch.allclose(pieces.mean(eps), of_queries), "moments that come in pieces"


def test_linear_is_the_ridge_solution_with_the_same_eps(head):
    queries, _, mass, centroids = head
    q, y = queries.double(), mass.double()
    eps = 1e-2
    ridge = eps * (q.T @ q).trace() / D
    wanted = torch.linalg.lstsq(
        torch.cat([q, ridge.sqrt() * torch.eye(D, dtype=torch.float64)]),
        torch.cat([y, torch.zeros(D, C, dtype=torch.float64)]),
    ).solution
    streamed = GWRLinear(centroids, eps=eps)
    for a, b in zip(queries.split(41), mass.split(41), strict=True):
        streamed.partial_fit(a, b)
    assert (streamed.solve() - wanted).abs().max() < 1e-10
    with_constant = GWRLinearIntercept(centroids, eps=1e-12).partial_fit(queries, mass).scores(queries)
    assert (with_constant.mean(0) - mass.mean(0)).abs().max() < 1e-4, "the intercept carries the prior"


@pytest.mark.parametrize("kind", ["static_prior", "gwr_linear"])
def test_the_same_pairs_again_say_the_same(head, kind):
    queries, _, mass, _ = head
    router = fit_router(kind, *head)
    scores = router.scores(queries)
    for _ in range(5):
        router.partial_fit(queries, mass)
    assert torch.allclose(router.scores(queries), scores, atol=1e-5)


def test_heads_at_once_equal_heads_one_by_one(head):
    queries, keys, mass, centroids = head
    both = [torch.stack([x, x.flip(0)]) for x in (queries, keys, mass)]
    means = torch.stack([centroids, centroids])
    for kind in set(ROUTERS) - {"random", "recency", *(learned.kind for learned in LEARNED)}:
        router = fit_router(kind, *both, means)
        alone = fit_router(kind, both[0][1], both[1][1], both[2][1], centroids)
        together = router.scores(both[0], mass=both[2])[1]
        assert torch.allclose(together, alone.scores(both[0][1], mass=both[2][1]), atol=1e-3), kind


@pytest.mark.parametrize("kind", ROUTERS)
def test_recall_grows_with_l_up_to_1_and_the_oracle_bounds_all(head, kind):
    queries, keys, mass, centroids = head
    router = fit_router(kind, *head)
    positions, labels = torch.arange(600), nearest(keys[None], centroids[None])[0].repeat(2)[:600]
    scores = router.scores(queries, positions=positions, labels=labels, mass=mass, min_distance=4)
    assert scores.shape == (600, C) and bool(scores.isfinite().all())
    points = torch.arange(1, C + 1)
    (recall,), (best,) = captured(scores, points, mass), captured(mass, points, mass)
    assert bool((recall.diff(dim=-1) >= 0).all()) and bool((recall <= best + 1e-6).all())
    assert torch.allclose(recall[:, -1], torch.ones(600), atol=1e-5)
    top = scores.sort(stable=True, descending=True).indices[:, :3]
    assert bucket_recall(mass, top) == pytest.approx(float(recall[:, 2].double().mean()), abs=1e-6)


def test_random_buckets_hold_their_share(head):
    mass = head[2].repeat(40, 1)
    router = fit_router("random", *head)
    recalls = captured(router.scores(torch.zeros(len(mass), D)), torch.arange(1, C + 1), mass)[0]
    error = 4 * recalls.std(0) / len(mass) ** 0.5
    assert bool(((recalls.mean(0) - torch.arange(1, C + 1) / C).abs() <= error + 1e-6).all())
    places = torch.arange(500)
    drawn = router.scores(torch.zeros(2, 500, D), places)
    assert torch.equal(drawn[:, 100:], router.scores(torch.zeros(2, 400, D), places[100:])), "by place, not by order"
    assert abs(float(drawn.mean()) - 0.5) < 0.02 and not torch.equal(drawn[0], drawn[1])
    shares = torch.bincount(drawn.argmax(-1).flatten(), minlength=C) / 1000
    assert bool(((shares - 1 / C).abs() < 0.05).all())


def test_what_learns_beats_what_does_not(head):
    queries, keys, mass, centroids = head

    def recall(kind):
        scores = fit_router(kind, queries[::2], keys, mass[::2], centroids).scores(queries[1::2], mass=mass[1::2])
        return bucket_recall(mass[1::2], scores.topk(2).indices)

    recalls = {kind: recall(kind) for kind in set(ROUTERS) - {"recency"}}
    assert recalls["random"] < recalls["static_prior"] < recalls["gwr_linear_intercept"] < recalls["oracle"]
    assert recalls["mlp"] > recalls["static_prior"] and recalls["linear_cross_entropy"] > recalls["random"] + 0.02


def test_recency_prefers_the_newest_far_key():
    labels = torch.tensor([0, 1, 2, 0, 1, 2, 2, 0])
    newest = newest_key(labels, torch.arange(8), 4, 2)
    assert newest[0].tolist() == [-1] * 4 and newest[2].tolist() == [0, -1, -1, -1]
    assert newest[7].tolist() == [3, 4, 5, -1]
    assert torch.equal(newest[5:], newest_key(labels, torch.arange(5, 8), 4, 2)), "a block alone"
    sink = torch.tensor([-1, 1, 2, 0, 1, 2, 2, 0])
    assert newest_key(sink, torch.arange(8), 4, 2)[2].tolist() == [-1] * 4, "a key that does not count"


def test_the_mlp_learns_what_no_line_can():
    draw = torch.Generator().manual_seed(0)
    queries = torch.randn(2000, 2, generator=draw)
    # Exclusive or: no line parts it.
    bucket = (queries[:, 0] > 0).long() ^ (queries[:, 1] > 0).long()
    mass = torch.nn.functional.one_hot(bucket, 2).float()

    def recall(kind, seed=0):
        router = fit_router(kind, queries, queries, mass, torch.eye(2), seed=seed)
        return bucket_recall(mass, router.scores(queries).topk(1).indices)

    assert recall("gwr_linear_intercept") < 0.65
    assert sum(recall("mlp", seed) for seed in range(4)) / 4 > 0.95
    assert sum(recall("mlp_squared", seed) for seed in range(4)) / 4 > 0.9
    assert recall("linear_cross_entropy") < 0.65, "the loss alone makes no more of a line"
    weights = fit_router("mlp", queries, queries, mass, torch.eye(2)).tensors()
    assert all(torch.equal(w, w.half().float()) for w in weights.values()), "what is measured is what is stored"


def test_the_gradients_of_both_losses_by_hand():
    """One query of 2 at weights 0: softmax gives 1/2 each where the masses are 3/4 and 1/4, the scores themselves 0."""
    weights, x, y = {"w": torch.zeros(1, 1, 2)}, torch.tensor([[[2.0]]]), torch.tensor([[[0.75, 0.25]]])
    assert _gradients(weights, x, y, squared=False)["w"].flatten().tolist() == [-0.5, 0.5]
    assert _gradients(weights, x, y, squared=True)["w"].flatten().tolist() == [-1.5, -0.5]


def test_sgd_goes_through_all_epochs_as_torch_does(head):
    """The same batches in torch's own SGD under the same cosine give the same last weights (GWR, section 4.1)."""
    queries, _, mass, centroids = head
    router = ROUTERS["linear_cross_entropy"](centroids, 5).fit(queries, mass, epochs=3, optimiser="sgd")
    draw = torch.Generator().manual_seed(5)
    order = torch.randperm(600, generator=draw)
    x, y = queries[order].double(), (mass[order] / mass[order].sum(-1, keepdim=True)).double()
    size = x.square().mean().sqrt()
    x = x / size
    weight = torch.zeros(D, C, dtype=torch.float64, requires_grad=True)
    optimiser, split, step = torch.optim.SGD([weight], lr=1.0), 600 // 8, 0
    for _ in range(3):
        for batch in (split + torch.randperm(600 - split, generator=draw)).split(512):
            step += 1
            optimiser.param_groups[0]["lr"] = RATES["sgd"] * (1 + math.cos(math.pi * step / 6)) / 2
            optimiser.zero_grad()
            (-y[batch] * torch.log_softmax(x[batch] @ weight, -1)).sum().div(len(batch)).backward()
            optimiser.step()
    assert torch.allclose(router.tensors()["w"].double(), weight.detach() / size, atol=2e-3)


def test_bad_input_is_refused(head):
    queries, keys, mass, centroids = head
    for arguments, message in (
        (("knn", queries, keys, mass, centroids), "There is no router 'knn'"),
        (("kmeans", queries[:, :4], keys, mass, centroids), "one size of vector"),
        (("kmeans", queries, keys, mass[:, :5], centroids), "one column per bucket"),
        (("kmeans", queries[:9], keys, mass, centroids), "one row per query"),
    ):
        with pytest.raises(BadSetting, match=message):
            fit_router(*arguments)
    for kind, message in (("oracle", "needs the mass"), ("recency", "needs the labels and positions")):
        with pytest.raises(BadSetting, match=message):
            fit_router(kind, *head).scores(queries)
    for kind in ("gwr_linear", "static_prior", "mlp", "whitening"):
        with pytest.raises(NotFitted, match=kind):
            ROUTERS[kind](centroids).scores(queries)
    for chosen, message in (([[0, 0]], "chosen twice"), ([[C]], "0 to 11"), ([[0]] * 2, "do not fit")):
        with pytest.raises(BadSetting, match=message):
            bucket_recall(mass[:1], chosen)
    assert bucket_recall([[0.2, 0.3, 0.5]], [[2, 0]]) == pytest.approx(0.7)
