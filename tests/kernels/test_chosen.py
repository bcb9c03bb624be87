"""Attention to keys that each query chose: against a masked softmax in float64; the choice against a stable sort."""

import pytest
import torch

from analysis.kernels.chosen import best_units, chosen_attention, runs
from tests.made.attention import defined

B, H, G, T = 2, 4, 2, 50


@pytest.fixture(autouse=True)
def compiled():
    if not runs(torch.zeros(1)):
        pytest.skip("no C++ compiler")


def by_mask(q, k, v, chosen, unit, window, n_sink, scale, sinks=None):
    """[B, H, n, D] in float64, of what is read by the rule as it is written down."""
    rows = torch.arange(T - q.shape[2], T)[:, None]
    keys = torch.arange(T)
    units = torch.arange(-(-T // unit))
    named = (chosen[..., None] == units).any(-2)  # [B, S, n, U]
    read = named.repeat_interleave(unit, -1)[..., :T].repeat_interleave(H // chosen.shape[1], 1)
    read = read | (rows - keys < window) | (keys < n_sink)
    read = read | ((keys // unit == rows // unit) & (unit > 1))
    return defined(q, k, v, read & (keys <= rows), scale, sinks)[0]


@pytest.mark.parametrize("unit, window, n_sink", [(1, 5, 0), (4, 7, 3), (8, 3, 9), (16, 1, 0), (4, 100, 4)])
@pytest.mark.parametrize("selections", [1, G, H])
@pytest.mark.parametrize("dtype, size", [(torch.float32, 32), (torch.float32, 20), (torch.bfloat16, 24)])
def test_each_query_reads_what_it_chose_and_what_all_read(unit, window, n_sink, selections, dtype, size):
    draw = torch.Generator().manual_seed(unit)
    shapes = (H, T - 6 * (unit == 8)), (G, T), (G, T)
    q, k, v = (torch.randn(B, *shape, size, generator=draw).to(dtype) for shape in shapes)
    units = -(-T // unit)
    order = torch.rand(B, selections, q.shape[2], units, generator=draw).argsort(-1)
    chosen = order[..., :3].int()
    # What lies ahead of a query may be named too, and is not read.
    chosen[torch.rand(chosen.shape, generator=draw) < 0.2] = -1
    for sinks in (None, torch.randn(H, generator=draw)):
        about = chosen, unit, window, n_sink, 0.3, sinks
        ours, wanted = chosen_attention(q, k, v, *about), by_mask(q, k, v, *about)
        assert ours.dtype == dtype
        assert (ours.double() - wanted).abs().max() < (1e-5 if dtype == torch.float32 else 0.03)


def test_states_may_lie_in_any_order():
    draw = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(B, T, heads, 32, generator=draw).transpose(1, 2) for heads in (H, G, G))
    chosen = torch.randint(0, 12, (B, 1, T, 1), generator=draw).int()
    about = chosen, 4, 3, 1, 0.2
    assert (chosen_attention(q, k, v, *about).double() - by_mask(q, k, v, *about)).abs().max() < 1e-5


def test_the_best_are_those_of_a_stable_sort():
    draw = torch.Generator().manual_seed(2)
    scores = torch.randint(0, 5, (3, 700, 19), generator=draw).float()
    scores[scores == 4] = -torch.inf
    scores[0, 0] = -torch.inf
    best = best_units(scores, 6)
    sorted_ = scores.sort(stable=True, dim=-1, descending=True)
    wanted = sorted_.indices[..., :6].masked_fill(sorted_.values[..., :6].isneginf(), -1)
    assert best.dtype == torch.int32 and torch.equal(best.long(), wanted)
    assert best_units(scores, 40).shape == (3, 700, 19)
