"""The effective rank: by hand, with ties, and the same count as a sort gives on every kind of row."""

import numpy as np
import pytest
import torch

import analysis
from analysis.errors import BadSetting
from analysis.kernels import rank
from analysis.kernels.rank import top_p_rank


def by_numpy(rows, mass):
    best = np.sort(np.asarray(rows, dtype=np.float64), -1)[..., ::-1]
    return np.minimum((best.cumsum(-1) < mass * rank.SLACK).sum(-1) + 1, (best > 0).sum(-1))


def test_by_hand_and_with_ties():
    assert top_p_rank(torch.tensor([[0.7, 0.2, 0.1], [0.5, 0.3, 0.2], [1.0, 0.0, 0.0]])).tolist() == [2, 3, 1]
    assert [int(top_p_rank(torch.tensor([0.4, 0.3, 0.2, 0.1]), mass)) for mass in (0.4, 0.5)] == [1, 2]
    assert top_p_rank([0.25] * 4, 1.0) == 4 and top_p_rank(np.full(10, 0.1), 0.9) == 9
    assert top_p_rank(torch.full((1, 4096), 1 / 4096), 0.5).tolist() == [2048]
    assert top_p_rank(torch.tensor([0.5] + [0.005] * 100), 0.75) == 51


@pytest.mark.parametrize("length", [1, 2, 33, 1024, 3000])
@pytest.mark.parametrize("spread", [0.0, 0.1, 1.0, 4.0, 30.0])
def test_the_count_is_that_of_a_sort(length, spread):
    logits = torch.randn(40, length, generator=torch.Generator().manual_seed(length)) * spread
    rows = logits.softmax(-1)
    for mass in (0.1, 0.5, 0.9, 0.999, 1.0):
        assert np.array_equal(top_p_rank(rows, mass).numpy(), by_numpy(rows, mass)), mass
        (ranks, threshold_of), (sorted_ranks, sorted_least) = rank.top_p(rows, mass), rank.by_sorting(rows, mass)
        assert torch.equal(ranks, sorted_ranks)
        read = [(rows >= threshold[:, None]) & (rows > 0) for threshold in (threshold_of, sorted_least)]
        assert torch.equal(*read) and bool((read[0].sum(-1) >= ranks).all())


def test_tiny_numbers_that_fill_one_bin_are_told_apart():
    row = torch.linspace(1.0, 1.1, 3000, dtype=torch.float64)
    row = (row / row.sum()).float()
    assert top_p_rank(row) == by_numpy(row, 0.9)
    small = torch.cat([torch.tensor([0.8]), torch.full((2**15,), 0.2 / 2**15)])
    assert top_p_rank(small, 0.9) == by_numpy(small, 0.9)
    dust = torch.full((100,), 1e-12)
    dust[0] = 1 - 1e-6
    assert top_p_rank(dust, 1.0) == 100


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_types_and_shapes(kind):
    rows = torch.tensor([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]], dtype=kind)
    result = top_p_rank(rows[None, :, None], 0.75)
    assert result.dtype == torch.long and result.shape == (1, 2, 1) and result.flatten().tolist() == [2, 1]
    assert top_p_rank(rows.T.contiguous().T, 0.75).tolist() == [2, 1], "not contiguous"
    assert top_p_rank(torch.zeros(0, 4)).shape == (0,) and top_p_rank(torch.zeros(2, 3)).tolist() == [0, 0]


def test_bad_input_is_refused():
    assert analysis.top_p_rank is top_p_rank
    for mass in (0.0, -1, 1.1, float("nan")):
        with pytest.raises(BadSetting, match="mass"):
            top_p_rank(torch.ones(3), mass)
    with pytest.raises(BadSetting, match="single number"):
        top_p_rank(0.5)


def test_the_least_that_is_counted_by_hand():
    """Of 0.5 0.3 0.15 0.05 the first two reach 0.7, three 0.9, all 1."""
    row = torch.tensor([0.3, 0.05, 0.5, 0.15])
    assert [rank.top_p(row, mass)[1].item() for mass in (0.7, 0.9, 1.0)] == pytest.approx([0.3, 0.15, 0.05])
