"""Focus with a router for every key-value head, as the shared one where all heads hold the same, else by its
definition; and with groups in some layers alone: what these and the others read, with kernels and from a cache."""

import json

import pytest
import torch

from analysis.errors import BadSetting
from analysis.groups.controls import random_centroids
from analysis.groups.gates import gate_logits
from analysis.groups.router import FocusRouter
from analysis.kernels.members import apart, texts_of
from analysis.methods.focus import Focus
from analysis.models import load_model
from analysis.seam.attention import apply
from analysis.seam.cache import GroupedLayer
from analysis.seam.calls import Call
from analysis.statistics import attention_inputs
from analysis.studies.stored.measured import Noted, read_pairs, router_hash
from analysis.take.carry import carry
from analysis.training.mitigations import Learning, balance_loss, follow, recluster
from analysis.training.run import Run
from analysis.training.settings import RouterTraining
from tests.made.tiny import tiny, token_ids

HEADS, LENGTH = 2, 40


@pytest.fixture(scope="module")
def routers():
    """(model, a router of each of its two key-value heads, one of both together, ids)."""
    model, ids = load_model(tiny("llama")), token_ids(2, LENGTH, seed=3)
    inputs = attention_inputs(model, list(ids.numpy()))
    settings = {"groups": 4, "window": 3, "n_sink": 1}
    by_head = FocusRouter(model.num_layers, model.width, heads=HEADS, **settings).scale_to(inputs).fit_potential(inputs)
    shared = FocusRouter(model.num_layers, model.width, **settings).scale_to(inputs).fit_potential(inputs)
    return model, by_head, shared, ids


def doubled(shared):
    """A router whose heads all hold what the shared one does."""
    router = FocusRouter(shared.layers, shared.width, **vars(shared.settings) | {"heads": HEADS})
    repeated = {"projection": (1, 1, HEADS), "centroids": (1, HEADS, 1), "potential": (1, HEADS)}
    router.load_state_dict({name: x.repeat(repeated[name]) for name, x in shared.state_dict().items()})
    return router


@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize(
    "settings", [{}, {"reading": "soft"}, {"membership": "literal"}, {"membership": "prefix"}, {"top": 2}]
)
def test_heads_that_hold_the_same_read_as_one_router_for_all(routers, settings, kernels):
    model, _, shared, ids = routers
    logits = []
    for router in (shared, doubled(shared)):
        with apply(model, Focus.build(router, **settings), kernels=kernels), torch.no_grad():
            logits.append(model.lm(ids).logits)
    assert torch.allclose(*logits, atol=1e-5)


def test_every_head_reads_by_its_own_groups(routers):
    """Pair by pair, from the groups that each head's router gives by itself."""
    model, by_head, _, ids = routers
    read = {}
    with apply(model, Focus.build(by_head), watch=lambda b, p: read.setdefault(b.layer, p > 0)), torch.no_grad():
        model.lm(ids)
    with apply(model, Focus.build(by_head), kernels=True), torch.no_grad():
        model.lm(ids)
    causal, places = torch.ones(LENGTH, LENGTH).tril() > 0, torch.arange(LENGTH)
    near = (places[:, None] - places < 3) | (places < 1)
    hidden = attention_inputs(model, list(ids.numpy()))[0].view(2, LENGTH, -1)
    wanted = []
    for head in range(HEADS):
        members = by_head.of_head(head).members(0, hidden).float()
        wanted += [causal & (near | (members @ members.mT > 0))] * 2
    assert torch.equal(read[0], torch.stack(wanted, 1)) and not torch.equal(wanted[0], wanted[2])


@pytest.mark.parametrize("reading", ["hard", "soft"])
def test_kernels_and_the_masked_pass_agree_by_head_and_by_layer(routers, reading, routed):
    model, by_head, _, ids = routers
    logits = []
    for kernels in (False, True):
        with apply(model, Focus.build(by_head, reading=reading), kernels=kernels), torch.no_grad():
            logits.append(model.lm(ids).logits)
    assert torch.allclose(*logits, atol=1e-5)
    model, router, ids = routed
    logits = []
    for kernels in (False, True):
        with apply(model, Focus.build(router, reading=reading), kernels=kernels), torch.no_grad():
            logits.append(model.lm(ids).logits)
    assert torch.allclose(*logits, atol=1e-5)


def test_a_token_after_a_prompt_reads_the_same_from_the_sorted_cache(routers):
    model, by_head, _, ids = routers
    method = Focus.build(by_head)
    with apply(model, method, kernels=True), torch.no_grad():
        one_pass, cache = model.lm(ids).logits, method.cache(model.lm)
        model.lm(ids[:, :-2], past_key_values=cache, use_cache=True)
        assert isinstance(cache.layers[0], GroupedLayer) and len(cache.layers[0].held.texts) == 2 * HEADS
        steps = [model.lm(token, past_key_values=cache, use_cache=True).logits for token in ids[:, -2:].split(1, 1)]
        assert torch.allclose(torch.cat(steps, 1), one_pass[:, -2:], atol=1e-5)
        keys = cache.layers[0].restore()[0]
    assert keys.shape[:3] == (2, HEADS, LENGTH)


@pytest.mark.parametrize("reading", ["hard", "soft"])
def test_learned_sinks_stand_beside_the_groups_of_each_head(routers, reading):
    """In float64 from the definition: of hard groups, and of gated scores."""
    _, by_head, _, _ = routers
    draw = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(2, n, LENGTH, 8, generator=draw) for n in (4, HEADS, HEADS))
    groups = torch.rand(2, LENGTH, HEADS, 4, generator=draw)
    groups = groups == groups.amax(-1, keepdim=True) if reading == "hard" else groups.softmax(-1)
    sinks = torch.tensor([0.3, -1.0, 2.0, 0.0])
    done = Focus.build(by_head, reading=reading).attend(Call(0, q, k, v, 0.3, 0, groups, None, sinks))
    places = torch.arange(LENGTH)
    near = (places[:, None] - places < 3) | (places < 1)
    scores = q.double() @ k.double().repeat_interleave(2, 1).mT * 0.3
    affinity = torch.einsum("bnhk,bthk->bhnt", groups.double(), groups.double()).repeat_interleave(2, 1)
    if reading == "hard":
        scores = scores.masked_fill(~(near | (affinity > 0.5)), -torch.inf)
    else:
        scores = torch.where(near, scores, gate_logits(scores, affinity))
    scores = scores.masked_fill(places > places[:, None], -torch.inf)
    scores = torch.cat([scores, sinks.double()[:, None, None].expand(2, 4, LENGTH, 1)], -1)
    wanted = scores.softmax(-1)[..., :-1] @ v.double().repeat_interleave(2, 1)
    assert (done.out.double() - wanted).abs().max() < 1e-5


def test_each_head_is_balanced_by_itself_and_comes_back_from_its_file(routers, tmp_path):
    model, by_head, shared, ids = routers
    inputs = attention_inputs(model, list(ids.numpy()))
    assert by_head.size == HEADS * shared.size
    for head in range(HEADS):
        single = by_head.of_head(head)
        for membership in ("causal", "literal", "prefix"):
            of_head = by_head.soft(1, inputs[1], membership=membership)[:, head]
            assert torch.allclose(of_head, single.soft(1, inputs[1], membership=membership), atol=1e-6)
        assert torch.allclose(single.variant().fit_potential(inputs).potential, single.potential, atol=1e-6)
    control = random_centroids(by_head, inputs)
    assert control.heads == HEADS and not torch.equal(control.centroids, by_head.centroids)
    loaded = FocusRouter.load(by_head.save(tmp_path / "own"))
    assert loaded.heads == HEADS and torch.equal(loaded.centroids, by_head.centroids)
    path = shared.save(tmp_path / "earlier").with_suffix(".json")
    note = json.loads(path.read_text())
    del note["settings"]["heads"]
    path.write_text(json.dumps(note))
    assert FocusRouter.load(tmp_path / "earlier").heads == 1
    assert router_hash(shared) == router_hash(FocusRouter.load(tmp_path / "earlier")) != router_hash(by_head)


def test_pairs_are_the_mean_of_the_heads(routers):
    model, by_head, _, ids = routers
    noted = Noted.build(by_head)
    with apply(model, noted), torch.no_grad():
        model.lm(ids[:1])
    members = by_head.members(0, attention_inputs(model, [ids[0].numpy()])[0])  # [T, heads, K]
    pairs = [read_pairs(members[:, head], 3, 1) for head in range(HEADS)]
    assert noted.pairs[0] == round(sum(pairs) / HEADS)
    largest = max(int(members[:, head].sum(0).max()) for head in range(HEADS))
    assert noted.counts[0].max() == largest


def test_training_moves_each_head_by_its_own_tokens(tmp_path):
    plan = RouterTraining(
        groups=2, d_s=4, length=16, tokens_per_step=16, steps=2, heads=HEADS, balance="softmax", balance_weight=0.5,
        calibration_windows=2, check_windows=1, window=2,
    )  # fmt: skip
    assert "heads" in plan.plain() and "heads" not in RouterTraining().plain()
    run = Run(load_model(tiny("llama")), None, token_ids(1, 400)[0].numpy(), plan, tmp_path / "c", None)
    before = run.router.centroids.detach().clone()
    router, _, log = run.train(lambda fraction, stage: None)
    moved = (router.centroids - before).view(3, HEADS, -1).norm(dim=-1)
    assert bool((moved > 0).all()) and all(0.5 <= share <= 1 for share in log[-1]["shares"])
    groups = torch.rand(1, 16, HEADS, 2).softmax(-1)
    method = Learning.build(router, plan=plan)
    method.seen.append((0, torch.randn(1, 16, 32), groups))
    wanted = sum(balance_loss(groups[0, :, head]) for head in range(HEADS)) / HEADS
    assert float(method.penalty()) == pytest.approx(0.5 * float(wanted))
    hidden, old = method.seen[0][1], router.centroids.clone()
    method.plan = RouterTraining(groups=2, ema=0.75)
    method.move_centroids()
    vectors = router.project(0, hidden[0])
    for head in range(HEADS):
        moved = follow(old[0, 2 * head : 2 * head + 2], vectors[:, 4 * head : 4 * head + 4], groups[0, :, head], 0.75)
        assert torch.allclose(router.centroids[0, 2 * head : 2 * head + 2], moved, atol=1e-6)
    second = router.of_head(1)
    recluster(router, [hidden[0]] * 3, 0)
    recluster(second, [hidden[0]] * 3, 0)
    directions = (torch.nn.functional.normalize(x, dim=-1) for x in (router.centroids[:, 2:], second.centroids))
    assert torch.allclose(*directions, atol=1e-5)


def test_heads_are_texts_of_their_own_and_what_cannot_be_is_refused(routers):
    members, states = torch.arange(12).view(1, 2, 3, 2) % 5 == 0, torch.arange(12).view(1, 6, 2, 1)
    assert torch.equal(texts_of(members)[2], members[0, :, 2])
    assert apart(states, members)[1, :, :, 0].tolist() == [[4, 5], [6, 7]]
    assert torch.equal(apart(states, members[:, :, 0]), states)
    model, by_head, shared, _ = routers
    with pytest.raises(BadSetting, match="for 3 key-value heads"):
        Focus.build(FocusRouter(model.num_layers, model.width, heads=3)).check(model.lm)
    with pytest.raises(BadSetting, match="groups that all heads share"):
        carry("focus", Focus.build(by_head), model.num_layers)


WINDOW = 3


@pytest.fixture(scope="module")
def routed():
    model = load_model(tiny("llama"))
    router = FocusRouter(model.num_layers, model.width, groups=4, window=WINDOW, grouped_layers=[1])
    ids = token_ids(1, 40, seed=3)
    return model, router.fit_potential(attention_inputs(model, [ids[0].numpy()])), ids


def test_only_the_named_layers_read_by_groups(routed):
    """Layer 0 is dense, so what enters layer 1 is what enters it in the model as it is; its groups tell what it
    reads, pair by pair."""
    model, router, ids = routed
    read = {}
    with apply(model, Focus.build(router), watch=lambda b, p: read.setdefault(b.layer, p[0] > 0)), torch.no_grad():
        model.lm(ids)
    causal = torch.ones(40, 40).tril() > 0
    assert torch.equal(read[0], causal.expand_as(read[0])) and torch.equal(read[2], causal.expand_as(read[2]))
    members = router.members(1, attention_inputs(model, [ids[0].numpy()])[1]).float()
    near = torch.arange(40)[:, None] - torch.arange(40) < WINDOW
    wanted = causal & (near | (members @ members.T > 0))
    assert torch.equal(read[1], wanted.expand_as(read[1])) and not torch.equal(wanted, causal)


def test_a_token_after_a_prompt_reads_the_same_from_the_cache(routed):
    model, router, ids = routed
    method = Focus.build(router)
    with apply(model, method, kernels=True), torch.no_grad():
        one_pass, cache = model.lm(ids).logits[:, -1], method.cache(model.lm)
        model.lm(ids[:, :-1], past_key_values=cache, use_cache=True)
        last = model.lm(ids[:, -1:], past_key_values=cache, use_cache=True).logits[:, -1]
    assert torch.allclose(last, one_pass, atol=1e-5)


def test_what_cannot_leave_is_refused_and_the_choice_comes_back_from_its_file(routed, tmp_path):
    model, router, _ = routed
    with pytest.raises(BadSetting, match="groups in every layer only"):
        carry("focus", Focus.build(router), model.num_layers)
    router.save(tmp_path / "r")
    assert FocusRouter.load(tmp_path / "r").grouped == [1]
