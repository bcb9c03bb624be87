"""What is pruned of a layer and what it costs, by hand and against the plain methods."""

import numpy as np
import pytest
import torch

from analysis.groups.controls import shuffled
from analysis.groups.router import FocusRouter
from analysis.methods import METHODS
from analysis.metrics.quality import token_losses
from analysis.models import load_model
from analysis.seam.attention import apply
from analysis.studies.context import Context
from analysis.studies.stored.measured import DENSE, Arm, Bench, read_pairs
from lab.focus.pruned import layer_arms
from lab.focus.pruning import block_sums, look
from tests.made.tiny import LAYERS, WIDTH, tiny, token_ids


@pytest.fixture(scope="module")
def bench():
    model = load_model(tiny("llama"))
    router = FocusRouter(LAYERS, WIDTH, groups=4, window=3, n_sink=1, seed=1)
    return Bench(model, router, token_ids(3, 24).numpy(), 1, None, Context())


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
    dense, arms_all = bench.measure(DENSE), layer_arms(router, 3, None, 0)
    with apply(model, METHODS["focus"].build(router), kernels=True):
        plain = np.concatenate([token_losses(model, torch.as_tensor(row)[None]) for row in ids])
    assert np.array_equal(bench.measure(arms_all["groups"]).losses, plain)
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
