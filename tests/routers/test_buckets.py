"""Buckets of keys, the masses in them, what is said of recall, and the file of fitted routers."""

import pytest
import torch

from analysis.errors import BadSetting, NotFitted
from analysis.metrics.routing import budgets, gap_closure, points_for
from analysis.papers import find
from analysis.routers import ROUTERS
from analysis.routers.buckets import bucket_sums, buckets_for, evenness, make_buckets, members, nearest
from analysis.routers.mlp import LEARNED
from analysis.routers.routing_state import RoutingState
from tests.made.routed import made_state

C, D = 12, 8


@pytest.mark.parametrize("sinks", [0, 3])
def test_masses_of_far_keys_block_by_block(sinks):
    draw = torch.Generator().manual_seed(1)
    heads, length, parts = 4, 40, 2
    weights = torch.softmax(torch.randn(heads, length, length, generator=draw), -1).tril()
    labels = torch.randint(0, C, (parts, length), generator=draw)
    member = members(labels, C)
    per_head = member.repeat_interleave(2, 0)
    places = torch.arange(length)
    for start, stop in ((0, 7), (7, 30), (30, 40)):
        rows = places[start:stop]
        body, sink = bucket_sums(weights[:, start:stop, :stop].contiguous(), member, rows, (1, 4, 16), sinks)
        for index, distance in enumerate((1, 4, 16)):
            far = weights[:, start:stop] * (rows[:, None] - places >= distance)
            assert torch.allclose(body[index] + sink[index], far @ per_head, atol=1e-6)
            assert torch.allclose(body[index], (far * (places >= sinks)) @ per_head, atol=1e-6)


def test_buckets_are_seeded_unit_and_not_empty():
    draw = torch.Generator().manual_seed(2)
    keys = torch.randn(2, 300, D, generator=draw)
    # Many copies of one key.
    keys[1, :250] = keys[1, :1]
    centroids = make_buckets(keys, 20, seed=5)
    assert torch.equal(centroids, make_buckets(keys, 20, seed=5)) and centroids.shape == (2, 20, D)
    assert torch.allclose(centroids.norm(dim=-1), torch.ones(2, 20), atol=1e-5)
    assert torch.bincount(nearest(keys, centroids)[0], minlength=20).min() > 0
    assert evenness(torch.tensor([5, 5, 5, 5])) == {"largest": 0.25, "empty": 0.0, "effective": pytest.approx(1.0)}
    assert evenness(torch.tensor([20, 0, 0, 0])) == {"largest": 1.0, "empty": 0.75, "effective": pytest.approx(0.25)}
    assert buckets_for(32768) == 1024 and buckets_for(2048) == 64
    with pytest.raises(BadSetting, match="301 buckets .* there are 300 calibration keys"):
        make_buckets(keys, 301)


def test_gap_closure_budgets_and_points():
    closure = gap_closure([0.3, 0.4, 0.9], [0.2, 0.2, 0.9], [0.4, 0.3, 0.9])
    assert closure.heads == [pytest.approx(0.5), pytest.approx(2.0), None]
    assert closure.mean_of_ratios == pytest.approx(1.25) and closure.ratio_of_means == pytest.approx(1.0)
    assert gap_closure([0.5], [0.5], [0.5]).ratio_of_means is None
    rows = [c for c in find("gwr_linear_routing", "table 2") if c.row != "Mean"]
    by = {name: [c.value for c in rows if c.column == name] for name in ("GWR Linear", "Symmetric K-Means", "Saap-MLP")}
    both = gap_closure(by["GWR Linear"], by["Symmetric K-Means"], by["Saap-MLP"])
    assert both.mean_of_ratios == pytest.approx(0.698, abs=2e-3)
    assert both.ratio_of_means == pytest.approx(0.749, abs=4e-3)
    assert budgets(1024) == [4, 8, 16, 32, 64, 128] and budgets(64) == [1, 2, 4, 8] and budgets(4) == [1]
    assert points_for(64) == list(range(1, 65))
    assert set(budgets(1024)) <= set(points_for(1024)) and points_for(1024)[-1] == 1024


def test_a_state_comes_back_from_its_files(tmp_path):
    state = made_state(model="tiny", revision="abc")
    path = state.save(tmp_path)
    again = RoutingState.load(path)
    assert path.name == "c6-d4-s1.safetensors" and again.settings == state.settings
    # Measured, and not stored for use.
    ablations = {kind.kind for kind in LEARNED[1:]}
    assert again.kinds == state.kinds == [kind for kind in ROUTERS if kind not in ablations]
    queries = torch.randn(4, 9, 8)
    for kind in set(state.kinds) - {"random", "recency", "oracle"}:
        assert torch.equal(again.router(kind, 1, 4).scores(queries), state.router(kind, 1, 4).scores(queries)), kind
    with pytest.raises(BadSetting, match="3 layers and 4 heads of 8 dimensions"):
        again.check(3, 4, 2, 16)
    with pytest.raises(NotFitted, match="There are no buckets"):
        RoutingState.load(tmp_path / "c1-d1-s1.safetensors")
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(BadSetting, match="damaged"):
        RoutingState.load(path)
