"""The effective rank: by hand, with ties, and the same count as a sort gives on every kind of row; what is read from
afar in a block of attention, by hand."""

import numpy as np
import pytest
import torch

import analysis
from analysis.errors import BadSetting
from analysis.kernels import rank
from analysis.kernels.far import in_bands, link, read_from_afar, strongest
from analysis.kernels.rank import top_p_rank


def by_numpy(rows, mass):
    best = np.sort(np.asarray(rows, dtype=np.float64), -1)[..., ::-1]
    return np.minimum((best.cumsum(-1) < mass * rank.SLACK).sum(-1) + 1, (best > 0).sum(-1))


def test_ranks_and_the_least_that_is_counted_by_hand():
    assert top_p_rank(torch.tensor([[0.7, 0.2, 0.1], [0.5, 0.3, 0.2], [1.0, 0.0, 0.0]])).tolist() == [2, 3, 1]
    assert [int(top_p_rank(torch.tensor([0.4, 0.3, 0.2, 0.1]), mass)) for mass in (0.4, 0.5)] == [1, 2]
    assert top_p_rank([0.25] * 4, 1.0) == 4 and top_p_rank(np.full(10, 0.1), 0.9) == 9
    assert top_p_rank(torch.full((1, 4096), 1 / 4096), 0.5).tolist() == [2048]
    assert top_p_rank(torch.tensor([0.5] + [0.005] * 100), 0.75) == 51
    # Of 0.5 0.3 0.15 0.05 the first two reach 0.7, three 0.9, all 1.
    row = torch.tensor([0.3, 0.05, 0.5, 0.15])
    assert [rank.top_p(row, mass)[1].item() for mass in (0.7, 0.9, 1.0)] == pytest.approx([0.3, 0.15, 0.05])
    assert analysis.top_p_rank is top_p_rank
    for mass in (0.0, -1, 1.1, float("nan")):
        with pytest.raises(BadSetting, match="mass"):
            top_p_rank(torch.ones(3), mass)
    with pytest.raises(BadSetting, match="single number"):
        top_p_rank(0.5)


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


# Queries at places 4 and 5 of a window, keys at 0 to 4; key 0 is the sink. Far is two or more tokens back.
ROWS, COLUMNS, FAR = np.array([4, 5]), np.arange(5), 2
READ = np.array([[0.5, 0.1, 0.2, 0.1, 0.1], [0.4, 0.0, 0.3, 0.2, 0.1]])
VISIBLE = np.array([[True] * 5, [False, False, True, True, True]])


def test_far_reading_leaves_the_sink_and_what_is_hidden_out():
    received, expected, mass, uniform = np.zeros(5), np.zeros(5), np.zeros(32), np.zeros(32)
    sink, far, even = read_from_afar(READ, VISIBLE, ROWS, COLUMNS, FAR, received, expected, mass, uniform)
    assert (sink, far, even) == pytest.approx((0.9, 0.3 + 0.5, 2 / 5 + 2 / 3))
    assert received.tolist() == pytest.approx([0, 0.1, 0.2 + 0.3, 0.2, 0])
    assert expected.tolist() == pytest.approx([0, 0.15, 0.15 + 0.25, 0.25, 0])
    # 0, 1, and 2 to 3 tokens back: what query 4 reads, then query 5.
    assert mass[:4].tolist() == pytest.approx([0.1, 0.1 + 0.1, 0.3 + 0.5, 0])
    assert uniform[:4].tolist() == pytest.approx([1 / 5, 1 / 5 + 1 / 3, 2 / 5 + 2 / 3, 0])


def test_far_reading_of_heads_by_hand():
    attention = np.array([[[0.1, 0.4, 9.0]], [[0.3, 0.4, 9.0]]], np.float32)
    share, head = np.empty((1, 2), np.float32), np.empty((1, 2), np.int32)
    strongest(attention, share, head)
    assert share.tolist() == np.float32([[0.3, 0.4]]).tolist() and head.tolist() == [[1, 0]]
    places, heads = np.full((2, 6, 2), -1, np.int32), np.zeros((2, 6, 2), np.int16)
    shares = np.zeros((2, 6, 2), np.float32)
    for layer, factor in enumerate((1.0, 0.5, 2.0)):
        share, head = (factor * READ).astype(np.float32), np.full((2, 5), 1, np.int32)
        link(share, head, VISIBLE, ROWS, COLUMNS, FAR, 0, 10 * layer, places, heads, shares)
    assert places[0, 4].tolist() == [2, 1] and shares[0, 4].tolist() == pytest.approx([0.4, 0.2])
    assert places[1, 2].tolist() == [5, 4] and shares[1, 2].tolist() == pytest.approx([0.6, 0.4])
    assert heads[0, 4].tolist() == [21, 21] and (places[0, :4] == -1).all() and (places[1, [0, 4, 5]] == -1).all()
    # Bands 2 to 3 and 4 or more tokens back.
    upto = np.array([[3, 1, 0], [4, 2, 0]])
    pairs = np.array([[False, True, True, False, False], [False, False, True, False, True]])
    assert in_bands(READ, pairs, upto).tolist() == [[3, 0], pytest.approx([0.1 + 0.2 + 0.3, 0])]
