"""Bucket routers: the algebra of the gauge, least squares, what every router must give, buckets, and files."""

import pytest
import torch

from analysis import bucket_recall, fit_router, gauge
from analysis.errors import BadSetting, NotFitted
from analysis.metrics.routing import captured
from analysis.routers import ROUTERS
from analysis.routers.buckets import make_buckets, members, nearest
from analysis.routers.controls import newest_key
from analysis.routers.linear import GWRLinear, GWRLinearIntercept
from analysis.routers.mlp import LEARNED, _gradients
from analysis.routers.moments import Moments

C, D = 12, 8


@pytest.fixture(scope="module")
def head():
    """Queries [600, 8], keys [500, 8] of other directions, unit centroids [12, 8] and masses [600, 12] of one head."""
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


def test_the_gauge_of_equal_moments_is_the_identity(head):
    S, R = gauge(head[0], head[0])
    assert (S - torch.eye(D)).abs().max() < 1e-8 and (R - torch.eye(D)).abs().max() < 1e-8


def test_moments_that_come_in_pieces(head):
    pieces = Moments()
    for part in head[0].split(77):
        pieces.add(part)
    assert torch.allclose(pieces.mean(), (head[0].double().T @ head[0].double()) / 600)


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


def test_streamed_routers_keep_sums_only(head):
    queries, _, mass, centroids = head
    for kind in ("static_prior", "gwr_linear"):
        router = fit_router(kind, *head)

        def size(router=router):
            return sum(x.numel() for x in vars(router).values() if isinstance(x, torch.Tensor))

        before, scores = size(), router.scores(queries)
        for _ in range(5):
            router.partial_fit(queries, mass)
        again = router.scores(queries)
        assert size() <= before + D * C and torch.allclose(again, scores, atol=1e-5), "the same pairs say the same"


def test_heads_at_once_equal_heads_one_by_one(head):
    queries, keys, mass, centroids = head
    both = [torch.stack([x, x.flip(0)]) for x in (queries, keys, mass)]
    means = torch.stack([centroids, centroids])
    for kind in set(ROUTERS) - {"random", "recency", *(learned.kind for learned in LEARNED)}:
        router = fit_router(kind, *both, means)
        alone = fit_router(kind, both[0][1], both[1][1], both[2][1], centroids)
        more = {"mass": both[2]} if kind == "oracle" else {}
        single = {"mass": both[2][1]} if kind == "oracle" else {}
        assert torch.allclose(router.scores(both[0], **more)[1], alone.scores(both[0][1], **single), atol=1e-3), kind


@pytest.mark.parametrize("kind", ROUTERS)
def test_recall_grows_with_l_up_to_1_and_the_oracle_bounds_all(head, kind):
    queries, keys, mass, centroids = head
    router = fit_router(kind, *head)
    positions, labels = torch.arange(600), nearest(keys[None], centroids[None])[0].repeat(2)[:600]
    scores = router.scores(queries, positions=positions, labels=labels, mass=mass, min_distance=4)
    assert scores.shape == (600, C) and bool(scores.isfinite().all())
    points = torch.arange(1, C + 1)
    (found,), (best,) = captured(scores, points, mass), captured(mass, points, mass)
    assert bool((found.diff(dim=-1) >= 0).all()) and bool((found <= best + 1e-6).all())
    assert torch.allclose(found[:, -1], torch.ones(600), atol=1e-5)
    top = scores.sort(stable=True, descending=True).indices[:, :3]
    assert bucket_recall(mass, top) == pytest.approx(float(found[:, 2].double().mean()), abs=1e-6)


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

    found = {kind: recall(kind) for kind in set(ROUTERS) - {"recency"}}
    assert found["random"] < found["static_prior"] < found["gwr_linear_intercept"] < found["oracle"]
    assert found["mlp"] > found["static_prior"]


def test_recency_prefers_the_newest_far_key():
    labels = torch.tensor([0, 1, 2, 0, 1, 2, 2, 0])
    found = newest_key(labels, torch.arange(8), 4, 2)
    assert found[0].tolist() == [-1] * 4 and found[2].tolist() == [0, -1, -1, -1]
    assert found[7].tolist() == [3, 4, 5, -1]
    assert torch.equal(found[5:], newest_key(labels, torch.arange(5, 8), 4, 2)), "a block alone"
    sink = torch.tensor([-1, 1, 2, 0, 1, 2, 2, 0])
    assert newest_key(sink, torch.arange(8), 4, 2)[2].tolist() == [-1] * 4, "a key that does not count"


def test_the_mlp_learns_what_no_line_can():
    draw = torch.Generator().manual_seed(0)
    queries = torch.randn(2000, 2, generator=draw)
    bucket = (queries[:, 0] > 0).long() ^ (queries[:, 1] > 0).long()  # exclusive or: no line parts it
    mass = torch.nn.functional.one_hot(bucket, 2).float()
    centroids = torch.eye(2)

    def recall(kind, seed=0):
        made = fit_router(kind, queries, queries, mass, centroids, seed=seed)
        return bucket_recall(mass, made.scores(queries).topk(1).indices)

    assert recall("gwr_linear_intercept") < 0.65
    assert sum(recall("mlp", seed) for seed in range(4)) / 4 > 0.95
    assert sum(recall("mlp_squared", seed) for seed in range(4)) / 4 > 0.9
    assert recall("linear_cross_entropy") < 0.65, "the loss alone makes no more of a line"
    again = fit_router("mlp", queries, queries, mass, centroids)
    assert torch.equal(again.w1_, again.w1_.half().float()), "what is measured is what is stored"


def test_the_gradients_of_both_losses_by_hand():
    """One query of 2 at weights 0: softmax gives 1/2 each where the masses are 3/4 and 1/4, the scores themselves 0."""
    weights, x, y = {"w": torch.zeros(1, 1, 2)}, torch.tensor([[[2.0]]]), torch.tensor([[[0.75, 0.25]]])
    assert _gradients(weights, x, y, squared=False)["w"].flatten().tolist() == [-0.5, 0.5]
    assert _gradients(weights, x, y, squared=True)["w"].flatten().tolist() == [-1.5, -0.5]


def test_a_line_by_cross_entropy_finds_the_bucket_that_is_worth_it(head):
    queries, _, mass, _ = head
    made = fit_router("linear_cross_entropy", *head)
    assert bucket_recall(mass, made.scores(queries).topk(1).indices) > 1 / C + 0.02, "more than a guess"
    assert made.w_.shape == (8, C) and "b2" not in made.tensors()


def test_bad_input_is_refused(head):
    queries, keys, mass, centroids = head
    for given, said in (
        (("knn", queries, keys, mass, centroids), "There is no router 'knn'"),
        (("kmeans", queries[:, :4], keys, mass, centroids), "one size of vector"),
        (("kmeans", queries, keys, mass[:, :5], centroids), "one column per bucket"),
        (("kmeans", queries[:9], keys, mass, centroids), "one row per query"),
    ):
        with pytest.raises(BadSetting, match=said):
            fit_router(*given)
    with pytest.raises(BadSetting, match="needs the mass"):
        fit_router("oracle", *head).scores(queries)
    with pytest.raises(BadSetting, match="needs the places"):
        fit_router("recency", *head).scores(queries)
    with pytest.raises(NotFitted, match="gwr_linear|GWR linear"):
        ROUTERS["gwr_linear"](centroids).scores(queries)
    for chosen, said in (([[0, 0]], "chosen twice"), ([[C]], "0 to 11"), ([[0]] * 2, "do not fit")):
        with pytest.raises(BadSetting, match=said):
            bucket_recall(mass[:1], chosen)
    assert bucket_recall([[0.2, 0.3, 0.5]], [[2, 0]]) == pytest.approx(0.7)
