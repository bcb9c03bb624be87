"""Longformer: windows and global tokens by hand, equal to what they must equal, growing windows, dilation, float64."""

import pytest
import torch

from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.seam.attention import Block, apply
from tests.made.tiny import FAMILIES, LAYERS, tiny, token_ids

LONGFORMER, STREAMING = METHODS["longformer"], METHODS["streaming_llm"]


def kept(method, length, layer=0, heads=1):
    """bool [H, T, T] that a method asks for, causality applied as the seam does."""
    places = torch.arange(length)
    visible = (places <= places[:, None])[None, None]
    block = Block(layer, torch.zeros(1, heads, length, length), visible, places, places, torch.zeros(1).long())
    return (method.mask(block) & visible)[0].expand(heads, length, length)


def logits(lm, method, ids):
    with torch.no_grad(), apply(lm, method):
        return lm(ids, use_cache=False).logits


def test_the_mask_by_hand():
    expected = [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 0, 1, 1, 0],
        [1, 0, 0, 1, 1],
    ]
    assert kept(LONGFORMER(window=2, n_global=1), 5)[0].int().tolist() == expected
    assert kept(LONGFORMER(window=1, n_global=0), 4)[0].equal(torch.eye(4, dtype=torch.bool))


@pytest.mark.parametrize("n_global", [0, 1, 4])
def test_equal_windows_are_a_window_with_sinks(n_global):
    """What makes a first token global, reading all before it, is nothing in a causal text."""
    lm, ids = tiny("llama"), token_ids()
    mine = logits(lm, LONGFORMER(window=6, n_global=n_global), ids)
    assert torch.equal(mine, logits(lm, STREAMING(window=6, n_sink=n_global), ids))
    two_sided = [[j <= i and (i - j < 6 or j < n_global or i < n_global) for j in range(20)] for i in range(20)]
    assert kept(LONGFORMER(window=6, n_global=n_global), 20)[0].tolist() == two_sided


@pytest.mark.parametrize("family", FAMILIES)
def test_a_window_over_the_text_is_dense_and_one_less_is_not(family):
    lm, ids = tiny(family), token_ids(1, 30)
    dense = logits(lm, Method(), ids)
    assert torch.equal(logits(lm, LONGFORMER(window=30, n_global=0), ids), dense)
    short = logits(lm, LONGFORMER(window=10, n_global=0), ids)
    assert torch.equal(short[:, :10], dense[:, :10]) and (short[:, 10:] - dense[:, 10:]).abs().max() > 1e-4


def test_growing_windows_keep_their_mean():
    method = LONGFORMER(window=20, n_global=0, widths="growing")
    method.check(tiny("llama"))
    assert [method.width(layer) for layer in range(LAYERS)] == [10, 20, 30]
    for layer, width in enumerate([10, 20, 30]):
        assert kept(method, 40, layer)[0].sum(1).tolist() == [min(i + 1, width) for i in range(40)]
    assert LONGFORMER(window=1, widths="growing").width(0) == 1


def test_dilation_by_hand():
    """Window 2, dilation 3, 3 layers: from layer 2 (the upper half) the last two of 3 heads read i and i - 3."""
    method = LONGFORMER(window=2, n_global=0, dilation=3)
    method.check(tiny("llama"))
    for layer in (0, 1):
        assert (kept(method, 9, layer, 3) == kept(LONGFORMER(window=2, n_global=0), 9)).all()
    plain, *spread = kept(method, 9, 2, 3)
    assert plain[8].nonzero().flatten().tolist() == [7, 8]
    for head in spread:
        assert [row.nonzero().flatten().tolist() for row in head[2:6]] == [[2], [0, 3], [1, 4], [2, 5]]
    assert kept(method, 9, 2, 1)[0, 8].nonzero().flatten().tolist() == [5, 8], "a model of one head"


def test_probabilities_in_float64():
    lm, ids, seen = tiny("qwen3"), token_ids(1, 30), []
    method = LONGFORMER(window=4, n_global=2, widths="growing", dilation=2)
    with torch.no_grad(), apply(lm, method, watch=lambda block, mass: seen.append((block, mass))):
        lm(ids, use_cache=False)
    assert [block.layer for block, _ in seen] == [0, 1, 2]
    for block, mass in seen:
        width = 2 * (block.layer + 1)
        for head in range(4):
            step = 2 if block.layer == 2 and head >= 2 else 1
            for i in (0, 5, 29):
                keys = [j for j in range(i + 1) if j < 2 or ((i - j) % step == 0 and i - j < width * step)]
                wanted = torch.softmax(block.scores[0, head, i, keys].double(), -1)
                assert torch.allclose(mass[0, head, i, keys].double(), wanted, atol=1e-6)
                assert mass[0, head, i].count_nonzero() <= len(keys)
