"""What is read from afar in a block of attention, by hand."""

import numpy as np
import pytest

from analysis.kernels.far import in_bands, link, read_from_afar, strongest

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


def test_the_strongest_head_is_the_first_of_those_that_give_most():
    attention = np.array([[[0.1, 0.4, 9.0]], [[0.3, 0.4, 9.0]]], np.float32)
    share, head = np.empty((1, 2), np.float32), np.empty((1, 2), np.int32)
    strongest(attention, share, head)
    assert share.tolist() == np.float32([[0.3, 0.4]]).tolist() and head.tolist() == [[1, 0]]


def test_a_link_comes_once_and_keeps_its_stronger_head():
    places, heads = np.full((2, 6, 2), -1, np.int32), np.zeros((2, 6, 2), np.int16)
    shares = np.zeros((2, 6, 2), np.float32)
    for layer, factor in enumerate((1.0, 0.5, 2.0)):
        share, head = (factor * READ).astype(np.float32), np.full((2, 5), 1, np.int32)
        link(share, head, VISIBLE, ROWS, COLUMNS, FAR, 0, 10 * layer, places, heads, shares)
    assert places[0, 4].tolist() == [2, 1] and shares[0, 4].tolist() == pytest.approx([0.4, 0.2])
    assert places[1, 2].tolist() == [5, 4] and shares[1, 2].tolist() == pytest.approx([0.6, 0.4])
    assert heads[0, 4].tolist() == [21, 21] and (places[0, :4] == -1).all() and (places[1, [0, 4, 5]] == -1).all()


def test_bands_hold_the_pairs_and_their_mass():
    # Bands 2 to 3 and 4 or more tokens back.
    upto = np.array([[3, 1, 0], [4, 2, 0]])
    pairs = np.array([[False, True, True, False, False], [False, False, True, False, True]])
    assert in_bands(READ, pairs, upto).tolist() == [[3, 0], pytest.approx([0.1 + 0.2 + 0.3, 0])]
