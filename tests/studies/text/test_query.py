"""The token a page on one head opens with: a whole word with the strongest far read."""

import numpy as np
import pandas as pd
import pytest
import torch

from analysis.statistics.states import States
from analysis.studies.text import query as first_query
from analysis.studies.text.query import far_reads, telling_query


def states(length=30, seed=0, window=None) -> States:
    draw = torch.Generator().manual_seed(seed)
    query, key = (torch.randn(heads, length, 8, generator=draw) for heads in (4, 2))
    made = States(query, key, 1.0, None)
    made.window = window
    return made


@pytest.mark.parametrize("window", [None, 9])
@pytest.mark.parametrize("block", [1 << 20, 4 * 30 * 7])
def test_far_reads_are_the_largest_far_weight_but_the_sink_s(window, block, monkeypatch):
    monkeypatch.setattr(first_query, "BLOCK_BYTES", block)
    made = states(window=window)
    found = far_reads(made, 2, far=5)
    weights = made.scores(2, 0, 30).double().softmax(-1).numpy()
    for row in range(30):
        far = weights[row, 1 : max(1, row - 5 + 1)]
        assert found[row] == pytest.approx(far.max(initial=0.0), abs=1e-6)
    assert not found[:6].any() and found[6] > 0


def test_a_whole_word_comes_first_then_a_piece_then_any_token(monkeypatch):
    """Reads .9 by a comma, .8 by a piece, .5 and .6 by whole words, of which one is no content word."""
    monkeypatch.setattr(first_query, "far_reads", lambda *_: np.array([0, 0.9, 0.8, 0.5, 0.6, 0], np.float32))
    words = pd.DataFrame({"piece": ["x", "x", ",", "Cr", " lamp", " the", " end"]})
    words["word"] = ["x", "x", ",", "Crale", "lamp", "the", "end"]
    words["content"] = [False, False, False, True, True, False, True]
    assert telling_query(None, 0, words, 1) == 3, "lamp"
    words.loc[4, "content"] = False
    assert telling_query(None, 0, words, 1) == 2, "Cr"
    words["content"] = False
    assert telling_query(None, 0, words, 1) == 1, ","
    monkeypatch.setattr(first_query, "far_reads", lambda *_: np.zeros(6, np.float32))
    assert telling_query(None, 0, words, 1) == 5, "nothing is far: the last token"
