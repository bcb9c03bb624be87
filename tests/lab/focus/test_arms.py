"""The arms of the studies of Focus: they equal the plain methods, and only literal ones read the future; what is pruned
of a layer and what it costs, by hand and against the plain methods."""

import json

import numpy as np
import pytest
import torch

from analysis.__main__ import main
from analysis.groups.controls import shuffled
from analysis.groups.router import FocusRouter
from analysis.methods import METHODS
from analysis.metrics.quality import perplexity, token_losses
from analysis.models import load_model
from analysis.seam.attention import apply
from analysis.studies.context import Context
from analysis.studies.stored.measured import (
    DENSE,
    READINGS,
    Arm,
    Bench,
    drawn_arms,
    read_pairs,
    trained_arm,
    window_arm,
)
from lab.focus.pruned import layer_arms
from lab.focus.pruning import block_sums, look
from lab.harness.routed import window_pairs
from tests.made.tiny import LAYERS, VOCABULARY, WIDTH, tiny, token_ids


@pytest.fixture(scope="module")
def bench():
    """Three windows of 24 tokens on a tiny random model, a router of four groups; nothing is kept."""
    model = load_model(tiny("llama"))
    router = FocusRouter(LAYERS, WIDTH, groups=4, window=3, n_sink=1, seed=1)
    return Bench(model, router, token_ids(3, 24).numpy(), 1, None, Context())


def test_arms_equal_the_plain_methods(bench):
    router, ids = bench.stand_in, bench.ids
    for name, settings in READINGS.items():
        with apply(bench.model, METHODS["focus"].build(router, window=5, **settings), kernels=True):
            plain = perplexity(bench.model, ids.reshape(-1), 24).losses
        got = bench.measure(trained_arm(name, router, 5))
        assert np.array_equal(got.losses, plain) and got.counts.shape == (3, LAYERS, 4)
        assert (got.counts.sum(2) == 24).all() and ((got.pairs == 300) == ("soft" in name)).all()
    dense = bench.measure(DENSE)
    assert (dense.pairs == 300).all() and dense.row("dense")["largest_share"] is None
    for everything in (window_arm(24), Arm("one group", {"window": 1}, drawn=(1, 1, 0))):
        got = bench.measure(everything)
        assert np.allclose(got.losses, dense.losses, atol=1e-5) and (got.pairs == 300).all()
    alone = bench.measure(window_arm(5))
    assert (alone.pairs == window_pairs(5, 24, 1)).all() and not np.allclose(alone.losses, dense.losses, atol=1e-3)


def test_random_tokens_depend_on_seed_layer_window_and_place_alone():
    router = FocusRouter(LAYERS, WIDTH, groups=4, top=2)
    arm = drawn_arms(router, 5, 7)[0]
    first = arm.memberships(0, 24, LAYERS)
    assert all(torch.equal(a, b) for a, b in zip(first, arm.memberships(0, 24, LAYERS), strict=True))
    assert all(layer.shape == (24, 4) and (layer.sum(1) == 2).all() for layer in first)
    draws = [first[1], arm.memberships(1, 24, LAYERS)[0], drawn_arms(router, 5, 8)[0].memberships(0, 24, LAYERS)[0]]
    assert not any(torch.equal(first[0], draw) for draw in draws)
    shares = torch.cat(arm.memberships(0, 4000, LAYERS)).float().mean(0)
    assert ((shares - 0.5).abs() < 0.03).all()


@pytest.mark.parametrize("name", ["window", "drawn", *READINGS])
def test_only_literal_arms_read_the_future(name, bench):
    """Other tokens after the 12th: what is lost before it stays, unless groups are balanced over the whole text."""
    router = bench.stand_in
    arm = {"window": window_arm(5), "drawn": drawn_arms(router, 5, 0)[0]}.get(name) or trained_arm(name, router, 5)
    changed = bench.ids.copy()
    changed[:, 12:] = 3 + (changed[:, 12:] + 40) % (VOCABULARY - 3)
    bench_changed = Bench(bench.model, router, changed, 1, None, Context())
    moved = np.abs(bench.measure(arm).losses - bench_changed.measure(arm).losses)[:, :11].max()
    assert (moved > 1e-4) == ("literal" in name)


def test_from_the_command_line(home, tmp_path, capsys):
    place = ["--model", home / "tiny", "--state", home / "state", "--corpus", home / "corpus", "-o", tmp_path / "g"]
    sizes = ["--router", "k4-top1", "--length", 16, "--windows-count", 2, "--sinks", 0, "--json"]
    assert main([*map(str, ["study", "groups", *place, *sizes])]) == 0
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {"rows", "claims", "sentence", "protocol"} <= set(printed) and printed["length"] == 16
    assert printed["n_sink"] == 0
    with pytest.raises(SystemExit) as stop:
        main(["study", "weather", "--corpus", "."])
    assert stop.value.code == 2 and "invalid choice: 'weather'" in capsys.readouterr().err


def test_a_block_and_shuffled_groups_by_hand():
    """Two keys of weight 1/4 and 3/4, the second pruned: its output was three quarters of 4 of a whole of (1, 3)."""
    probabilities, keep = torch.tensor([[[0.25, 0.75], [0.5, 0.5]]]), torch.tensor([[True, False], [True, True]])
    values = torch.tensor([[[4.0, 0.0], [0.0, 4.0]]])
    entropy, candidates, mass, norm, change = block_sums(probabilities, values, keep).tolist()
    assert (entropy, candidates, mass) == pytest.approx((0 + np.log(2), 1 + 2, 0.75))
    assert norm == pytest.approx(3 / 10**0.5) and change == pytest.approx((3**2 + 3**2) ** 0.5 / 10**0.5)
    members = torch.eye(4, dtype=torch.bool)[torch.arange(40) % 3]
    dealt = shuffled(members, 1)
    assert torch.equal(dealt.sum(0), members.sum(0)) and not torch.equal(dealt, members)
    assert read_pairs(dealt, 1) == read_pairs(members, 1) and read_pairs(dealt, 3) != read_pairs(members, 3)


def test_what_is_looked_at_is_dense_attention_and_its_parts_agree(bench):
    model, router, ids = bench.model, bench.stand_in, bench.ids[0]
    masses_by = look(model, router, ids, 3, 1, [5] * LAYERS, [7] * LAYERS)  # [L, 4, 5]
    entropies, masses = np.zeros(LAYERS), np.zeros(LAYERS)
    trained = bench.measure(Arm("groups", {"window": 3}, router)).pairs[0]

    def watch(block, probabilities):
        entropies[block.layer] += float(torch.special.entr(probabilities).sum(-1).mean(1).sum()) / 24
        near = (block.distances() < 5) | (block.columns < 1)
        masses[block.layer] += float((probabilities * ~near).sum(-1).mean(1).sum()) / 24

    with apply(model, METHODS["dense"](), watch=watch), torch.no_grad():
        model.lm(torch.as_tensor(ids)[None], use_cache=False)
    assert masses_by[:, 0, 0] == pytest.approx(entropies, abs=1e-4)
    assert masses_by[:, 3, 2] == pytest.approx(masses, abs=1e-4)
    assert (masses_by[:, 0, 1] == 25 / 2).all() and masses_by[:, 0, 2:].max() < 1e-5
    assert masses_by[0, 1, 1] * 24 == pytest.approx(trained[0]), "the first layer sees the same whatever is pruned"
    assert (masses_by[:, 1:, 0] < masses_by[:, :1, 0]).all() and (masses_by[:, 1:, 2:] > 0).all()


def test_one_layer_alone_is_pruned(bench):
    model, router, ids = bench.model, bench.stand_in, bench.ids
    dense, all_arms = bench.measure(DENSE), layer_arms(router, 3, None, 0)
    with apply(model, METHODS["focus"].build(router), kernels=True):
        plain = np.concatenate([token_losses(model, torch.as_tensor(row)[None]) for row in ids])
    assert np.array_equal(bench.measure(all_arms["groups"]).losses, plain)
    for layer in range(LAYERS):
        arms = layer_arms(router, 3, layer, 0)
        groups, control = bench.measure(arms["groups"]), bench.measure(arms["random"])
        assert not np.allclose(groups.losses, dense.losses, atol=1e-4)
        assert not np.allclose(groups.losses, control.losses, atol=1e-4)
        unpruned = [index for index in range(LAYERS) if index != layer]
        assert (groups.pairs[:, unpruned] == 300).all() and (groups.pairs[:, layer] < 300).all()
        assert np.array_equal(groups.counts[:, layer], control.counts[:, layer]), "groups of the same sizes"
    full = bench.measure(Arm("window", {"window": 24}, layer=1))
    assert np.allclose(full.losses, dense.losses, atol=1e-5) and (full.pairs == 300).all()
