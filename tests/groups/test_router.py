"""The router: its size, start, memberships, null controls, fit without training, and its file."""

import json

import pytest
import torch

from analysis.errors import BadSetting, NotFitted
from analysis.groups.controls import random_centroids, random_tokens
from analysis.groups.dominance import balanced_largest_share, confidence, largest_share, stability
from analysis.groups.fit import fit_without_training, principal_directions
from analysis.groups.kmeans import spherical_kmeans
from analysis.groups.router import FocusRouter, score_spread
from analysis.groups.sinkhorn import frozen_potential


def samples(layers=2, tokens=600, width=24, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return [torch.randn(tokens, width, generator=draw) + torch.randn(width, generator=draw) for _ in range(layers)]


@pytest.mark.parametrize(
    ("layers", "width", "groups", "d_s", "size"),
    [
        (12, 768, 4, 16, 148_224),  # GPT-2 124M, "148K"
        (12, 768, 4, 32, 296_448),  # "296K"
        (32, 4096, 2, 16, 2_098_176),  # Mistral 7B, "2.1M"
    ],
)
def test_size_is_the_papers(layers, width, groups, d_s, size):
    assert FocusRouter(layers, width, groups=groups, d_s=d_s).size == size == layers * (width * d_s + groups * d_s)


def test_scores_and_dominance_by_hand():
    router = FocusRouter(1, 2, groups=2, d_s=1)
    with torch.no_grad():
        router.projection[0] = torch.tensor([[1.0], [2.0]])
        router.centroids[0] = torch.tensor([[1.0], [-3.0]])
    assert router.scores(0, torch.tensor([[1.0, 1.0]])).tolist() == [[3.0, -9.0]]
    with pytest.raises(BadSetting, match="width 2 and got 8"):
        router.members(0, torch.zeros(3, 8))
    assert largest_share(torch.tensor([[0, 0, 1, 2], [0, 0, 0, 1]]).numpy(), 4) == 5 / 8
    assert confidence([[0.7, 0.3], [0.5, 0.5]]) == pytest.approx(0.6)
    assert balanced_largest_share(128, 8) == pytest.approx(0.171, abs=0.002)
    assert balanced_largest_share(1024, 8) == pytest.approx(0.141, abs=0.001)
    share, matched = stability([0, 0, 1, 1, 2, 2], [1, 1, 2, 2, 0, 1], 3)
    assert share == pytest.approx(5 / 6) and matched.tolist() == [1, 2, 0]


def test_cosine_scores_leave_lengths_out_and_have_no_scale_to_fit():
    router = FocusRouter(1, 2, groups=2, d_s=2, similarity="cosine")
    with torch.no_grad():
        router.projection[0] = torch.eye(2)
        router.centroids[0] = torch.tensor([[5.0, 0.0], [-0.1, 0.1]])
    scores = router.scores(0, torch.tensor([[3.0, 3.0], [0.0, -0.5]]))
    assert torch.allclose(scores, torch.tensor([[0.5**0.5, 0.0], [0.0, -(0.5**0.5)]]), atol=1e-6)
    before = router.centroids.clone()
    assert torch.equal(router.scale_to([torch.randn(9, 2)]).centroids, before)
    planted = fit_without_training(samples(), 3, d_s=8, similarity="cosine")
    assert planted.settings.similarity == "cosine" and planted.centroids.norm(dim=-1).allclose(torch.ones(2, 3))


def test_start_has_the_asked_spread_and_defaults_depend_on_top():
    hidden = samples()
    router = FocusRouter(2, 24, groups=4, top=2).scale_to(hidden)
    with torch.no_grad():
        spreads = [float(score_spread(router.scores(layer, sample))) for layer, sample in enumerate(hidden)]
    assert spreads == pytest.approx([0.35, 0.35], rel=1e-4)
    assert (router.settings.gate_sharpness, router.settings.gate_offset) == (40.0, 0.125)
    assert FocusRouter(2, 24, seed=1).projection.equal(FocusRouter(2, 24, seed=1).projection)


def test_membership_is_the_top_of_the_causal_assignment_and_needs_no_other_token():
    hidden = samples()
    router = FocusRouter(2, 24, groups=5, top=2).scale_to(hidden).fit_potential(hidden)
    text = hidden[1][:40]
    members = router.members(1, text[None])[0]
    assert members.dtype == torch.bool and members.sum(-1).tolist() == [2] * 40
    g = router.soft(1, text, membership="causal")
    assert bool((g[members].view(40, 2).amin(-1) >= g[~members].view(40, 3).amax(-1)).all())
    assert torch.equal(router.members(1, text[7:8])[0], members[7])
    assert torch.equal(router.potential[1], frozen_potential(router.scores(1, hidden[1]), 0.1))
    mask = torch.arange(40) > 3
    assert torch.equal(router.soft(1, text, mask, membership="causal")[:4], torch.zeros(4, 5))
    prefix = router.soft(1, text, membership="prefix")
    assert torch.allclose(prefix[9], router.soft(1, text[:10])[9], atol=1e-6), "balanced over the tokens so far"
    unbalanced = FocusRouter(2, 24, groups=3, iterations=0).fit_potential(hidden)
    assert not unbalanced.potential.any() and unbalanced.variant(iterations=9).fit_potential(hidden).potential.any()
    assert torch.equal(unbalanced.soft(0, text, membership="causal"), unbalanced.soft(0, text)), "softmax both ways"


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
@pytest.mark.parametrize("top", [1, 3])
def test_one_token_joins_the_groups_that_it_joins_among_others_also_once_the_router_has_changed(similarity, top):
    router = FocusRouter(2, 24, groups=6, d_s=5, top=top, similarity=similarity, seed=3)
    hidden = torch.randn(1, 40, 24, generator=torch.Generator().manual_seed(4))
    router.fit_potential([hidden[0]] * 2)
    for changed, by in ((router.potential, 1), (router.centroids, -1), (router.projection, 3)):
        with torch.no_grad():
            changed *= by
        for layer in range(2):
            among = router.members(layer, hidden)
            alone = [router.members_of_token(layer, hidden[:, [token]], top) for token in range(40)]
            assert torch.equal(torch.cat(alone, 1), among) and among.any(-1).all()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(router.members_of_token(0, hidden[:, :1], top), router.members(0, hidden[:, :1]))
        inside = router.scores(0, hidden[0].bfloat16())
    assert inside.dtype == torch.float32 and torch.equal(inside, router.scores(0, hidden[0].bfloat16()))


def test_save_and_load_keep_everything(tmp_path):
    hidden = samples()
    router = FocusRouter(2, 24, groups=4, window=16, gate="centred").scale_to(hidden).fit_potential(hidden)
    path = router.save(tmp_path / "focus" / "k4.top1", kind="trained", steps=7, corpus="0123456789ab", revision="abc")
    assert path.name == "k4.top1.safetensors" and len(list(path.parent.iterdir())) == 2
    again = FocusRouter.load(tmp_path / "focus" / "k4.top1.json", layers=2, width=24)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in router.state_dict().items())
    assert again.settings == router.settings and again.about == router.about and again.trained
    assert json.loads((tmp_path / "focus" / "k4.top1.json").read_text())["about"]["steps"] == 7


def test_load_refuses_absent_foreign_and_damaged_files(tmp_path):
    with pytest.raises(NotFitted, match="no router 'k8'"):
        FocusRouter.load(tmp_path / "k8")
    path = FocusRouter(2, 24).save(tmp_path / "k8")
    with pytest.raises(BadSetting, match="2 layers of width 24 and the model has 6 layers of width 256"):
        FocusRouter.load(path, layers=6, width=256)
    data_of_router, note = path.read_bytes(), path.with_suffix(".json").read_text()
    for data, text in (
        (data_of_router[:-4], note),
        (b"", note),
        (data_of_router, "{"),
        (data_of_router, "[]"),
        (data_of_router, note.replace('"groups": 8', '"groups": 9')),
        (data_of_router, note.replace('"groups"', '"grouqs"')),
    ):
        path.write_bytes(data)
        path.with_suffix(".json").write_text(text)
        with pytest.raises(BadSetting):
            FocusRouter.load(path)
    with pytest.raises(BadSetting, match="kind is one of"):
        FocusRouter(2, 24).save(path, kind="magic")


WRONG = {"groups": 0, "top": 9, "d_s": 0, "window": 0, "n_sink": -1, "temperature": 0, "gate": "soft"}
WRONG |= {"iterations": 1.5, "gate_offset": float("inf")}


@pytest.mark.parametrize("name", WRONG)
def test_settings_out_of_range_are_refused(name):
    with pytest.raises(BadSetting):
        FocusRouter(2, 24, **{name: WRONG[name]})


def test_random_centroids_keep_projection_spread_and_balance():
    hidden = samples(tokens=2000)
    router = fit_without_training(hidden, groups=6, d_s=4)
    control = random_centroids(router, hidden, seed=3)
    assert torch.equal(control.projection, router.projection)
    assert not torch.allclose(control.centroids, router.centroids)
    for layer, sample in enumerate(hidden):
        spreads = [float(score_spread(r.scores(layer, sample)).detach()) for r in (router, control)]
        assert spreads[0] == pytest.approx(spreads[1], rel=1e-3)
        assert largest_share(control.members(layer, sample).int().argmax(-1).numpy(), 6) < 0.3
    assert torch.equal(random_centroids(router, hidden, seed=3).centroids, control.centroids)
    assert control.about["kind"] == "random centroids" and not control.trained
    members = random_tokens(8000, 8, top=2, seed=5)
    assert members.sum(-1).eq(2).all() and torch.equal(members, random_tokens(8000, 8, top=2, seed=5))
    assert members.float().mean(0).sub(0.25).abs().max() < 0.02


def test_fit_without_training_finds_planted_groups_and_reaches_its_confidence():
    draw = torch.Generator().manual_seed(0)
    centres = torch.randn(4, 24, generator=draw) * 3
    truth = torch.randint(0, 4, (1500,), generator=draw)
    hidden = [centres[truth] + torch.randn(1500, 24, generator=draw) + 10 * torch.ones(24) for _ in range(2)]
    router = fit_without_training(hidden, groups=4, d_s=6, window=16, confidence=0.9)
    assert not router.trained and router.about["kind"] == "not trained" and router.settings.window == 16
    for layer, sample in enumerate(hidden):
        g = router.soft(layer, sample, membership="causal").detach().numpy()
        assert confidence(g) == pytest.approx(0.9, abs=0.01)
        assert stability(truth.numpy(), g.argmax(-1), 4)[0] > 0.95
    again = fit_without_training(hidden, groups=4, d_s=6, window=16, confidence=0.9)
    assert torch.equal(again.centroids, router.centroids)


def test_fit_without_training_refuses_what_cannot_work():
    for hidden, settings in (
        (samples(tokens=3), {}),
        (samples(width=8), {"d_s": 16}),
        (samples(), {"confidence": 0.2}),
    ):
        with pytest.raises(BadSetting):
            fit_without_training(hidden, 4, **settings)
    # Nothing to tell apart: still a whole router.
    alike = fit_without_training([torch.ones(40, 8)], 3, d_s=2)
    assert bool(alike.potential.isfinite().all()) and alike.members(0, torch.ones(2, 8)).sum(-1).tolist() == [1, 1]
    assert fit_without_training(samples(), 1).soft(0, samples()[0], membership="causal").eq(1).all()


def test_principal_directions_hold_the_variance_and_do_not_turn_with_the_rounding():
    x = torch.randn(500, 40, generator=torch.Generator().manual_seed(0)) * torch.linspace(3, 0.1, 40)
    x = x - x.mean(0)
    directions = principal_directions(x, 5)
    assert torch.allclose(directions.T @ directions, torch.eye(5), atol=1e-4)
    best = torch.linalg.eigvalsh(x.T @ x)[-5:].sum()
    assert float((x @ directions).square().sum() / best) > 0.999
    # In float32 they turned by 0.00007 between processors, and a token between two groups changed its group.
    draw = torch.Generator().manual_seed(0)
    turned = torch.linalg.qr(torch.randn(40, 40, generator=draw))[0]
    x = torch.randn(2000, 40, generator=draw) * torch.linspace(1.01, 1, 40) @ turned
    directions = principal_directions(x, 5)
    assert directions.dtype == torch.float32
    assert float((directions - principal_directions(x.double(), 5)).abs().max()) < 1e-7


def test_spherical_kmeans_finds_directions_and_leaves_no_bucket_empty():
    x = torch.tensor([[1.0, 0.0], [9.0, 0.1], [0.0, 2.0], [0.1, 3.0], [-1.0, 0.0]])
    centroids, labels = spherical_kmeans(x, 3)
    assert labels[0] == labels[1] != labels[2] == labels[3] != labels[4] and labels[4] != labels[0]
    assert torch.allclose(centroids.norm(dim=-1), torch.ones(3), atol=1e-5)
    assert torch.allclose(centroids[labels[4]], torch.tensor([-1.0, 0.0]), atol=1e-6)
    x = torch.randn(300, 7, generator=torch.Generator().manual_seed(1))
    centroids, labels = spherical_kmeans(x, 9, seed=4)
    assert torch.equal(labels, (torch.nn.functional.normalize(x, dim=-1) @ centroids.T).argmax(-1))
    assert torch.equal(labels, spherical_kmeans(x, 9, seed=4)[1])
    for hostile in (torch.ones(6, 3), torch.zeros(6, 3), torch.eye(6)):
        centroids, labels = spherical_kmeans(hostile, 6)
        assert sorted(labels.tolist()) == list(range(6)) and bool(centroids.isfinite().all())
    with pytest.raises(BadSetting, match="as many rows as buckets"):
        spherical_kmeans(x, 301)
    with pytest.raises(BadSetting, match="finite"):
        spherical_kmeans(x / 0, 2)
